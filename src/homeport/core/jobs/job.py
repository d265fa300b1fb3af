"""A job: a command in a container image, or a command of the machine, that one node runs to completion; or an
inference request, which the engines of its site answer."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Final

from homeport.core.inference.request import InferenceRequest
from homeport.core.model.instance import Failure
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Generation, JobId, JobState, NodeId, SiteName

JOB: Final = "job"
"""The kind of work, in orders and journals."""


class JobType(StrEnum):
    """What a job runs."""

    CONTAINER = "container"
    COMMAND = "command"
    """A native command of the machine, where the node allows it."""
    INFERENCE = "inference"
    """A request to the engines of the site, through its task plane. No node is given it."""


def type_of(*, image: str, is_inference: bool) -> JobType:
    """Of a job that does not say its type."""
    if is_inference:
        return JobType.INFERENCE
    return JobType.CONTAINER if image else JobType.COMMAND


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What was submitted. Two submissions of one id must be equal."""

    type: JobType
    command: tuple[str, ...] = ()
    """The program and its arguments. For a container, the arguments of its entrypoint where it has one; empty means
    the image's own."""
    image: str = ""
    entrypoint: str = ""
    """Of a container: a program in place of the image's own entrypoint; it gets the command as its arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment, each with the name of the site's secret that it gets."""
    node: NodeId | None = None
    selector: Selector = ANYTHING
    """Labels that the node must have."""
    cpu_cores: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    timeout_seconds: float = 3600.0
    """Of one attempt, from its start; pulling the image is not included."""
    retries: int = 0
    """How many further attempts may follow one that failed, or whose node was lost."""
    artifacts: tuple[str, ...] = ()
    """Files to keep: paths in the container, or relative to the command's working folder."""
    inference: InferenceRequest | None = None
    """What an inference job asks, and nothing of the others has."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file that the job has left."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JobOutput:
    """The end of what an attempt has printed."""

    text: str = field(default="", repr=False)
    bytes_total: int = 0
    """Of everything that was printed, as UTF-8; `text` is the end of it."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How one attempt ended, as its node reports it."""

    exit_code: int | None = None
    """None where the program did not end by itself, or did not begin."""
    output: JobOutput = field(default_factory=JobOutput)
    files: tuple[JobFile, ...] = ()
    note: str = ""
    """What could not be kept: an artifact that is missing or too large."""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobArtifact:
    """The name and size of an artifact."""

    path: str
    size: int


NO_GENERATION: Final = Generation(0)


@dataclass(frozen=True, slots=True)
class Job:
    id: JobId
    site: SiteName
    spec: JobSpec
    state: JobState
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    attempt: int = 0
    """The number of attempts that were begun."""
    generation: Generation = NO_GENERATION
    """Of the newest attempt's order. Only a result with this number counts."""
    cancel_generation: Generation = NO_GENERATION
    """Of the order to stop it; 0 where there is none."""
    node_id: NodeId | None = None
    """Where the newest attempt runs, or ran."""
    cancelled_by: str | None = None
    """Who has asked to cancel it. It may still complete, if that came too late."""
    not_before: datetime | None = None
    """The next attempt does not begin earlier."""
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    """Why it is in this state, or what it waits for."""
    failure: Failure | None = None
    """Of the newest attempt."""
    exit_code: int | None = None
    output_bytes: int = 0
    files: tuple[JobArtifact, ...] = ()
    is_delivered: bool = True
    """Whether its site has it. Only central keeps jobs that have not reached their site yet."""

    @property
    def place(self) -> str:
        """What runs it, in a sentence."""
        return self.node_id or "the engines of its site"

    @property
    def key(self) -> tuple[SiteName, JobId]:
        return self.site, self.id


ENDED: Final = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})
OPEN: Final = frozenset(JobState) - ENDED
