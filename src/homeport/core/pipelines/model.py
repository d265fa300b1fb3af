"""A pipeline as its file says it, and a run of it."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.instance import Failure
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import RunId, RunState, SiteName, StepState


class StepKind(StrEnum):
    JOB = "job"
    INFERENCE = "inference"
    HTTP = "http"
    PIPELINE = "pipeline"
    PLUGIN = "plugin"
    """A kind of the user's own, by the name that central was started with."""


class After(StrEnum):
    """When a step begins, once the steps that it needs have ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    """At least one of them failed."""
    ANY = "any"


class InputType(StrEnum):
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    OBJECT = "object"


class Missed(StrEnum):
    """What becomes of times of a schedule that passed while no central ran."""

    SKIP = "skip"
    RUN = "run"
    """One run makes up for all of them."""


class Overlap(StrEnum):
    """What a schedule does while its previous run has not ended."""

    SKIP = "skip"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Input:
    type: InputType
    is_required: bool = True
    default: Any = None


@dataclass(frozen=True, slots=True)
class PipelineStep:
    name: str
    kind: StepKind
    action: Mapping[str, Any]
    """What it does: the fields of its kind, with templates in their texts."""
    needs: tuple[str, ...] = ()
    """The steps before it: those it names, and those its expressions refer to."""
    after: After = After.SUCCESS
    condition: str | None = None
    for_each: str | None = None
    parallel: int = 8
    """Items of a list at once."""
    retries: int = 0
    backoff_seconds: float = 5.0
    """Before the first retry; doubled for each one after it."""
    timeout_seconds: float = 3600.0
    """Of one attempt, with the time that it waits for a node or an engine."""
    allow_failure: bool = False
    site: SiteName | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    cron: str
    timezone: str = "UTC"
    missed: Missed = Missed.SKIP
    overlap: Overlap = Overlap.SKIP
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Webhook:
    secret: str
    """The name of a secret of the pipeline's site."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[PipelineStep, ...]
    """In an order in which each comes after those it needs."""
    description: str = ""
    site: SiteName | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 86_400.0
    schedule: Schedule | None = None
    webhook: Webhook | None = None

    def step(self, name: str) -> PipelineStep:
        return next(step for step in self.steps if step.name == name)


@dataclass(frozen=True, slots=True)
class ItemRun:
    """One item of a step; a step without a list has one."""

    state: StepState = StepState.WAITING
    attempt: int = 0
    not_before: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    reason: str = ""
    failure: Failure | None = None
    reference: str = ""
    """What carries it out: the id of a job, of a task or of a run."""


@dataclass(frozen=True, slots=True)
class StepRun:
    name: str
    state: StepState = StepState.WAITING
    items: tuple[ItemRun, ...] = ()
    """Empty until it has begun."""
    is_list: bool = False
    """Whether it goes over a list."""
    reason: str = ""
    """Why it is in this state, or what it waits for."""
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a run runs: its steps may do what they may do."""

    name: str
    role: Role
    sites: tuple[SiteName, ...] = ()
    key: str = ""
    kind: CallerKind = CallerKind.LOCAL

    @property
    def caller(self) -> Caller:
        return Caller(self.name, self.role, sites=self.sites, key=self.key, kind=self.kind)


@dataclass(frozen=True, slots=True)
class Run:
    id: RunId
    pipeline: str
    site: SiteName | None
    """Of the pipeline; None for one of the whole fleet."""
    state: RunState
    version: int
    source: str
    """The pipeline's file."""
    inputs: Mapping[str, Any]
    owner: Owner
    trigger: str
    """`hand`, `webhook`, `schedule`, or `pipeline` for one that another run started."""
    created_at: datetime
    updated_at: datetime
    steps: tuple[StepRun, ...] = ()
    parent: RunId | None = None
    depth: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancelled_by: str | None = None
    reason: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)

    def step(self, name: str) -> StepRun:
        return next(step for step in self.steps if step.name == name)


ItemKey = tuple[str, int]
"""The name of a step, and the number of its item."""


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What an item of a step has left."""

    output: Any = None
    log: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline that is kept by name, for webhooks, schedules and other pipelines."""

    name: str
    site: SiteName | None
    version: int
    source: str
    owner: Owner
    """Who saved it; its triggers run for them."""
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None = None
    """When its schedule is due."""
    is_paused: bool = False


NO_RESULT: Final = ItemResult()
