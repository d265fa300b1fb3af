"""Jobs over HTTP: what is submitted, and what is shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from homeport.core.inference.request import InferenceRequest
from homeport.core.jobs.job import Job, JobSpec, JobType, type_of
from homeport.core.jobs.rules import (
    ARTIFACT_PATH_MAX,
    ARTIFACTS_MAX,
    COMMAND_BYTES_MAX,
    COMMAND_WORDS_MAX,
    ENTRYPOINT_LENGTH_MAX,
    ENVIRONMENT_BYTES_MAX,
    ENVIRONMENT_MAX,
    MODEL_LENGTH_MAX,
    PROMPT_BYTES_MAX,
    TOKENS_MAX,
)
from homeport.core.placement.eligibility import bytes_of
from homeport.core.values.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.jobs.ports import JobRequest, OutputPart
from homeport.serving.bodies.body import Body, FailureBody, PageBody, SiteNameText
from homeport.vocabulary import JobId, NodeId, SiteName

Word = Annotated[str, StringConstraints(max_length=COMMAND_BYTES_MAX)]
Name = Annotated[str, StringConstraints(max_length=200)]
Value = Annotated[str, StringConstraints(max_length=ENVIRONMENT_BYTES_MAX)]
Path = Annotated[str, StringConstraints(max_length=ARTIFACT_PATH_MAX)]


class InferenceBody(Body):
    model: str = Field(max_length=MODEL_LENGTH_MAX)
    prompt: str = Field(max_length=PROMPT_BYTES_MAX)
    max_tokens: int = Field(default=512, ge=1, le=TOKENS_MAX)
    priority: Literal["batch", "interactive"] = "batch"
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    pool: str = Field(default="", max_length=128)
    """Only there; any pool of the site that serves the model when left out."""


class SubmitJob(Body):
    id: str | None = Field(default=None, max_length=200)
    """Chosen by the client: submitting it again with the same content gives the same job, with another is a
    conflict. Made by the server when left out."""
    site: SiteNameText | None = None
    """Central chooses one that can run it when left out."""
    type: JobType | None = None
    """A container where an image is given, an inference request where that is, else a command of the machine."""
    command: list[Word] = Field(default=[], max_length=COMMAND_WORDS_MAX)
    """The program and its arguments. For a container, the arguments of its entrypoint where it has one; empty means
    the image's own."""
    image: str = Field(default="", max_length=1000)
    entrypoint: str = Field(default="", max_length=ENTRYPOINT_LENGTH_MAX)
    """Of a container: a program in place of the image's own entrypoint."""
    environment: dict[Name, Value] = Field(default={}, max_length=ENVIRONMENT_MAX)
    secrets: dict[Name, Name] = Field(default={}, max_length=ENVIRONMENT_MAX)
    """Variables, each with the name of the site's secret that it gets."""
    node: str | None = Field(default=None, max_length=200)
    selector: str | None = Field(default=None, max_length=1000)
    """Labels that the node must have: `gpu=yes,zone!=cellar`."""
    cpu: float = 0.0
    """Processor cores."""
    memory: str = Field(default="", max_length=50)
    """Such as `512Mi` or `2Gi`."""
    gpus: int = 0
    timeout_seconds: float = 3600.0
    retries: int = 0
    artifacts: list[Path] = Field(default=[], max_length=ARTIFACTS_MAX)
    """Files to keep, 1 MiB in all."""
    inference: InferenceBody | None = None
    """A request to the engines of the site, in place of a command. Its answer is the job's output."""


class JobArtifactBody(Body):
    path: str
    size: int


class JobBody(Body):
    id: str
    site: str
    state: str
    type: str
    command: Sequence[str]
    image: str
    entrypoint: str
    inference: InferenceBody | None
    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    node: str | None
    """Where the newest attempt runs, or ran."""
    wanted_node: str | None
    selector: str
    cpu: float
    memory_bytes: int
    gpus: int
    timeout_seconds: float
    retries: int
    attempt: int
    reason: str
    """Why it is in this state, or what it waits for."""
    failure: FailureBody | None
    exit_code: int | None
    output_bytes: int
    artifacts: Sequence[JobArtifactBody]
    cancelled_by: str | None
    created_by: str
    created_at: datetime
    assigned_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class JobDetailBody(JobBody):
    output: str
    """The end of what the newest attempt has printed; empty until it has ended."""


class JobsBody(PageBody):
    jobs: Sequence[JobBody]


class OutputBody(Body):
    state: str
    reason: str
    """Why it is in this state, or what it waits for."""
    attempt: int
    text: str
    start: int
    """Where the text begins, in bytes of the attempt's output."""
    next: int
    """Give it as `after` to get what follows."""
    generation: int
    """Of the attempt; give it with `after`. Another attempt begins at 0 again."""
    complete: bool
    """Whether nothing more will come."""


def request_of(body: SubmitJob) -> JobRequest:
    memory = bytes_of(body.memory) if body.memory else 0.0
    if body.memory and not memory:
        message = f"{body.memory!r} is not an amount of memory: write it as in 512Mi or 2Gi."
        raise InvalidInput(problems=[Problem("memory", message)])
    return JobRequest(
        spec=JobSpec(
            type=body.type or type_of(image=body.image, is_inference=body.inference is not None),
            command=tuple(body.command),
            image=body.image,
            entrypoint=body.entrypoint,
            environment=body.environment,
            secrets=body.secrets,
            node=None if body.node is None else NodeId(body.node),
            selector=parse_selector(body.selector) if body.selector else ANYTHING,
            cpu_cores=body.cpu,
            memory_bytes=int(memory),
            gpus=body.gpus,
            timeout_seconds=body.timeout_seconds,
            retries=body.retries,
            artifacts=tuple(body.artifacts),
            inference=None if body.inference is None else InferenceRequest(**body.inference.model_dump()),
        ),
        id=None if body.id is None else JobId(body.id),
        site=None if body.site is None else SiteName(body.site),
    )


def job_body(job: Job) -> JobBody:
    return JobBody(**_fields(job))


def detail_body(job: Job, output: str) -> JobDetailBody:
    return JobDetailBody(**_fields(job), output=output)


def output_body(part: OutputPart) -> OutputBody:
    return OutputBody(
        state=part.job.state.value,
        reason=part.job.reason,
        attempt=part.job.attempt,
        text=part.text,
        start=part.start,
        next=part.next,
        generation=part.generation,
        complete=part.is_complete,
    )


def _inference(asked: InferenceRequest) -> InferenceBody:
    return InferenceBody.model_validate(
        {name: getattr(asked, name) for name in InferenceBody.model_fields},
    )


def _fields(job: Job) -> dict[str, Any]:
    spec, failure = job.spec, job.failure
    return {
        "id": job.id,
        "site": job.site,
        "state": job.state.value,
        "type": spec.type.value,
        "command": spec.command,
        "image": spec.image,
        "entrypoint": spec.entrypoint,
        "inference": None if spec.inference is None else _inference(spec.inference),
        "environment": spec.environment,
        "secrets": spec.secrets,
        "node": job.node_id,
        "wanted_node": spec.node,
        "selector": str(spec.selector),
        "cpu": spec.cpu_cores,
        "memory_bytes": spec.memory_bytes,
        "gpus": spec.gpus,
        "timeout_seconds": spec.timeout_seconds,
        "retries": spec.retries,
        "attempt": job.attempt,
        "reason": job.reason,
        "failure": None if failure is None else FailureBody(code=failure.code, message=failure.message),
        "exit_code": job.exit_code,
        "output_bytes": job.output_bytes,
        "artifacts": [JobArtifactBody(path=file.path, size=file.size) for file in job.files],
        "cancelled_by": job.cancelled_by,
        "created_by": job.created_by,
        "created_at": job.created_at,
        "assigned_at": job.assigned_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "updated_at": job.updated_at,
    }
