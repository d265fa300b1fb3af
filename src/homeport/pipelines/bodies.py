"""Pipelines over HTTP: what is asked for, and what is shown."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from homeport.core.pipelines.limits import SOURCE_BYTES_MAX
from homeport.core.pipelines.model import Definition, InputType, ItemResult, ItemRun, Pipeline, Run, StepRun
from homeport.pipelines.reading import readable
from homeport.serving.bodies.body import Body, FailureBody, PageBody

Source = Annotated[str, StringConstraints(min_length=1, max_length=SOURCE_BYTES_MAX)]
Name = Annotated[str, StringConstraints(max_length=63)]


class StartRun(Body):
    id: str | None = Field(default=None, pattern=r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$")
    """Chosen by the client: asking again with the same content gives the same run. Made here when left out."""
    source: Source | None = None
    """The text of a pipeline's file."""
    pipeline: Name | None = None
    """The name of a saved one, instead."""
    inputs: dict[Annotated[str, StringConstraints(max_length=63)], Any] = Field(default={}, max_length=50)


class SavePipeline(Body):
    source: Source
    paused: bool | None = None
    """Whether its schedule and webhook start nothing. Left out, it stays as it is; a new one is not paused."""


class CheckPipeline(Body):
    source: Source


class ItemBody(Body):
    number: int
    state: str
    attempt: int
    reason: str
    failure: FailureBody | None
    reference: str
    """The id of the job, task or run that carries it out."""
    next_attempt_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


class StepBody(Body):
    name: str
    kind: str
    needs: Sequence[str]
    """The steps before it."""
    state: str
    reason: str
    """Why it is in this state."""
    started_at: datetime | None
    finished_at: datetime | None
    items: Sequence[ItemBody]
    """One for each item of its list; one for a step without a list; none before it has begun."""


class RunBody(Body):
    id: str
    pipeline: str
    site: str | None
    state: str
    reason: str
    trigger: str
    parent: str | None
    created_by: str
    cancelled_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    steps_ended: int
    steps_total: int


class RunDetailBody(RunBody):
    version: int
    """Grows with each change; give it as `after` to wait for the next one."""
    source: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    steps: Sequence[StepBody]


class RunsBody(PageBody):
    runs: Sequence[RunBody]


class ItemResultBody(Body):
    number: int
    output: Any
    log: str


class StepResultBody(Body):
    step: str
    state: str
    items: Sequence[ItemResultBody]


class InputBody(Body):
    name: str
    type: InputType
    required: bool
    """Whether a run must give it."""
    default: Any
    """What a run has that does not give it."""


class PipelineBody(Body):
    name: str
    site: str | None
    version: int
    description: str
    paused: bool
    schedule: str | None
    timezone: str | None
    webhook: bool
    next_at: datetime | None
    steps: Sequence[str]
    inputs: Sequence[InputBody]
    saved_by: str
    created_at: datetime
    updated_at: datetime


class PipelineDetailBody(PipelineBody):
    source: str


class PipelinesBody(PageBody):
    pipelines: Sequence[PipelineBody]


class CheckedStepBody(Body):
    name: str
    kind: str
    needs: Sequence[str]
    """The steps before it: those it names, and those its expressions refer to."""


class CheckedBody(Body):
    name: str
    steps: Sequence[str]
    """In an order in which each comes after those it needs."""
    graph: Sequence[CheckedStepBody]
    """The same steps with what joins them, to be drawn."""
    inputs: Sequence[InputBody]
    """What a run of it may be given."""


def checked_body(pipeline: Pipeline) -> CheckedBody:
    return CheckedBody(
        name=pipeline.name,
        steps=[step.name for step in pipeline.steps],
        graph=[CheckedStepBody(name=step.name, kind=step.kind.value, needs=step.needs) for step in pipeline.steps],
        inputs=_input_bodies(pipeline),
    )


def run_body(run: Run) -> RunBody:
    return RunBody(**_run_fields(run))


def run_detail(run: Run) -> RunDetailBody:
    """Blocks: it reads the file."""
    pipeline = readable(run.source)
    return RunDetailBody(
        **_run_fields(run),
        version=run.version,
        source=run.source,
        inputs=run.inputs,
        outputs=run.outputs,
        steps=[_step_body(step, pipeline) for step in run.steps],
    )


def step_results(step: StepRun, results: Mapping[tuple[str, int], ItemResult]) -> StepResultBody:
    items = []
    for number in range(len(step.items)):
        result = results.get((step.name, number), ItemResult())
        items.append(ItemResultBody(number=number, output=result.output, log=result.log))
    return StepResultBody(step=step.name, state=step.state.value, items=items)


def pipeline_body(definition: Definition) -> PipelineBody:
    """Blocks: it reads the file."""
    return PipelineBody(**_definition_fields(definition))


def pipeline_detail(definition: Definition) -> PipelineDetailBody:
    """Blocks: it reads the file."""
    return PipelineDetailBody(**_definition_fields(definition), source=definition.source)


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "site": run.site,
        "state": run.state.value,
        "reason": run.reason,
        "trigger": run.trigger,
        "parent": run.parent,
        "created_by": run.owner.name,
        "cancelled_by": run.cancelled_by,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "steps_ended": sum(step.finished_at is not None for step in run.steps),
        "steps_total": len(run.steps),
    }


def _step_body(step: StepRun, pipeline: Pipeline | None) -> StepBody:
    found = None if pipeline is None else pipeline.step(step.name)
    return StepBody(
        name=step.name,
        kind="" if found is None else found.kind.value,
        needs=() if found is None else found.needs,
        state=step.state.value,
        reason=step.reason,
        started_at=step.started_at,
        finished_at=step.finished_at,
        items=[_item_body(number, item) for number, item in enumerate(step.items)],
    )


def _item_body(number: int, item: ItemRun) -> ItemBody:
    failure = item.failure
    return ItemBody(
        number=number,
        state=item.state.value,
        attempt=item.attempt,
        reason=item.reason,
        failure=None if failure is None else FailureBody(code=failure.code, message=failure.message),
        reference=item.reference,
        next_attempt_at=item.not_before,
        started_at=item.started_at,
        finished_at=item.finished_at,
    )


def _input_bodies(pipeline: Pipeline) -> list[InputBody]:
    return [
        InputBody(name=name, type=each.type, required=each.is_required, default=each.default)
        for name, each in pipeline.inputs.items()
    ]


def _definition_fields(definition: Definition) -> dict[str, Any]:
    pipeline = readable(definition.source, f"{definition.name}.yaml")
    schedule = None if pipeline is None else pipeline.schedule
    return {
        "name": definition.name,
        "site": definition.site,
        "version": definition.version,
        "description": "" if pipeline is None else pipeline.description,
        "paused": definition.is_paused,
        "schedule": None if schedule is None else schedule.cron,
        "timezone": None if schedule is None else schedule.timezone,
        "webhook": pipeline is not None and pipeline.webhook is not None,
        "next_at": definition.next_at,
        "steps": [] if pipeline is None else [step.name for step in pipeline.steps],
        "inputs": [] if pipeline is None else _input_bodies(pipeline),
        "saved_by": definition.owner.name,
        "created_at": definition.created_at,
        "updated_at": definition.updated_at,
    }
