"""Why a run of a pipeline is as it is: who started it, each step with its reason, and what happens next."""

from collections.abc import Iterator

from homeport.core.pipelines.lifecycle import RUN_ENDED
from homeport.core.pipelines.model import Run, StepRun
from homeport.core.why import Decision
from homeport.vocabulary import StepState

ITEMS_MAX = 20
STARTED = {
    "hand": "by hand",
    "webhook": "by its webhook",
    "schedule": "by its schedule",
    "pipeline": "by a step of another run",
}


def why_run(run: Run) -> tuple[Decision, ...]:
    parent = f" {run.parent}" if run.parent is not None else ""
    how = f"started {STARTED.get(run.trigger, run.trigger)}{parent}"
    cancelled = [] if run.cancelled_by is None else [Decision("cancel", f"{run.cancelled_by} asked to cancel it")]
    return (
        Decision("run", f"pipeline {run.pipeline} for {run.owner.name}", how, run.created_at),
        *(decision for step in run.steps for decision in _step(step)),
        *cancelled,
        Decision("next", _next(run)),
    )


def _step(step: StepRun) -> Iterator[Decision]:
    yield Decision("step", f"{step.name} is {step.state}", step.reason, step.finished_at or step.started_at)
    for number, item in enumerate(step.items[:ITEMS_MAX]):
        name = f"{step.name}[{number}]" if step.is_list else step.name
        attempt = f"attempt {item.attempt} is {item.state}" if step.is_list or item.attempt > 1 else ""
        why = str(item.failure) if item.failure is not None else item.reason
        if attempt or item.reference or why:
            by = f", carried out by {item.reference}" if item.reference else ""
            yield Decision("item", f"{name}: {attempt or item.state}{by}", why)
    if len(step.items) > ITEMS_MAX:
        yield Decision("item", f"{step.name} has {len(step.items) - ITEMS_MAX} further items")


def _next(run: Run) -> str:
    if run.state in RUN_ENDED:
        return f"nothing: it is {run.state}{f', {run.reason}' if run.reason else ''}"
    under_way = [step.name for step in run.steps if step.state is StepState.RUNNING]
    if under_way:
        return f"{', '.join(under_way)} ends, then what needs it begins"
    waiting = next((step for step in run.steps if step.state is StepState.WAITING), None)
    if waiting is None:
        return run.reason or "its outputs are computed"
    return f"{waiting.name} begins{f': {waiting.reason}' if waiting.reason else ''}"
