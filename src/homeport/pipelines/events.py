"""The events of a run: its own state, and those of its steps."""

from collections.abc import Iterator
from datetime import datetime

from homeport.core.model.event import NewEvent, Subject
from homeport.core.pipelines.model import Run, StepRun
from homeport.vocabulary import EventKind, StepState, SubjectKind


def events_between(before: Run | None, after: Run, now: datetime) -> Iterator[NewEvent]:
    """What has changed from one version of a run to the next, steps first."""
    known = {} if before is None else {step.name: step.state for step in before.steps}
    for step in after.steps:
        if step.state is not known.get(step.name, StepState.WAITING):
            yield _step_event(after, step, now)
    if before is None or before.state is not after.state:
        yield _run_event(before, after, now)
    elif before.cancelled_by != after.cancelled_by:
        yield _run_event(before, after, now, f"is being cancelled by {after.cancelled_by}")


def _run_event(before: Run | None, run: Run, now: datetime, what: str | None = None) -> NewEvent:
    what = what or ("was created" if before is None else f"is {run.state}")
    return NewEvent(
        EventKind.PIPELINE_STATE,
        now,
        f"run {run.id[:8]} of pipeline {run.pipeline} {what}{f': {run.reason}' if run.reason else ''}",
        site=run.site,
        data={
            "run_id": run.id,
            "pipeline": run.pipeline,
            "before": None if before is None else before.state.value,
            "state": run.state.value,
            "trigger": run.trigger,
            "reason": run.reason,
        },
        subject=Subject(SubjectKind.PIPELINE, run.id),
    )


def _step_event(run: Run, step: StepRun, now: datetime) -> NewEvent:
    return NewEvent(
        EventKind.PIPELINE_STEP,
        now,
        f"step {step.name} of run {run.id[:8]} of pipeline {run.pipeline} is {step.state}"
        f"{f': {step.reason}' if step.reason else ''}",
        site=run.site,
        data={
            "run_id": run.id,
            "pipeline": run.pipeline,
            "step": step.name,
            "state": step.state.value,
            "items": len(step.items),
            "reason": step.reason,
        },
        subject=Subject(SubjectKind.PIPELINE, run.id),
    )
