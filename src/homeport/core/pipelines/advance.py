"""What follows in a run: a pure function of the pipeline, the run, what its steps have left, and the time.

`advance` begins what can begin and ends what has ended; `finished` takes the end of one item. Both return the run as
it is then; who calls them stores it, and carries out the items that are RUNNING. A run that was interrupted is
continued by calling `advance` on what was stored.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from homeport.core.lifecycle.machine import Stepped
from homeport.core.model.instance import Failure
from homeport.core.pipelines.expressions import evaluate, is_true, parse, render
from homeport.core.pipelines.functions import ExpressionError
from homeport.core.pipelines.lifecycle import RUN_ENDED, RUN_STATES, STEP_ENDED, STEP_STATES
from homeport.core.pipelines.limits import ITEMS_MAX, OUTPUT_BYTES_MAX, OUTPUTS_BYTES_MAX, PARALLEL_MAX
from homeport.core.pipelines.model import (
    NO_RESULT,
    After,
    ItemKey,
    ItemResult,
    ItemRun,
    Pipeline,
    PipelineStep,
    Run,
    StepRun,
)
from homeport.core.values.backoff import BackoffPolicy
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Actor, RunState, RunTrigger, StepState, StepTrigger

BACKOFF_SECONDS_MAX: Final = 600.0
EXPRESSION: Final = "EXPRESSION"
TIMEOUT: Final = "TIMEOUT"
TOO_LARGE: Final = "OUTPUT_TOO_LARGE"
Results = Mapping[ItemKey, ItemResult]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt of an item ended."""

    result: ItemResult = NO_RESULT
    failure: Failure | None = None
    is_final: bool = False
    """After a failure: another attempt would fail in the same way."""
    is_cancelled: bool = False


def advance(pipeline: Pipeline, run: Run, results: Results, now: datetime) -> Run:
    """Raises nothing: an expression without a value fails its step."""
    if run.state in RUN_ENDED:
        return run
    if run.state is RunState.PENDING and run.cancelled_by is None:
        steps = run.steps or tuple(StepRun(step.name) for step in pipeline.steps)
        run = _stepped(replace(run, steps=steps, started_at=now), RunTrigger.STARTED, "", now)
    run = _stopped(pipeline, run, now)
    for step in pipeline.steps:
        if run.steps:
            run = _begun(run, step, results, now)
            run = _started(run, step, now)
            run = _closed(run, step, now)
    return _ended(pipeline, run, results, now)


def finished(pipeline: Pipeline, run: Run, key: ItemKey, outcome: Outcome, *, results: Results, now: datetime) -> Run:
    """The run after an attempt of an item has ended. `results` are those of the items before it."""
    name, number = key
    step, item = pipeline.step(name), run.step(name).items[number]
    failure = outcome.failure or _oversize(outcome.result, results)
    if outcome.is_cancelled and run.cancelled_by is not None:
        return _with_item(run, key, _moved(item, StepTrigger.CANCELLED, now, f"cancelled by {run.cancelled_by}"))
    if failure is None:
        return _with_item(run, key, _moved(item, StepTrigger.SUCCEEDED, now, ""))
    failed = replace(item, failure=failure)
    if item.attempt > step.retries or outcome.is_final or run.cancelled_by is not None:
        return _with_item(run, key, _moved(failed, StepTrigger.FAILED, now, str(failure)))
    delay = BackoffPolicy(step.backoff_seconds, BACKOFF_SECONDS_MAX).ceiling_seconds(item.attempt)
    reason = f"attempt {item.attempt} of {step.retries + 1} failed: {failure}"
    again = _moved(failed, StepTrigger.RETRIED, now, reason)
    return _with_item(run, key, replace(again, not_before=now + timedelta(seconds=delay), finished_at=None))


def with_waits(run: Run, waits: Mapping[ItemKey, str]) -> Run:
    """With what items under way wait for; empty for those that do not any more. A step under way says the first of
    them."""
    for key, why in waits.items():
        item = run.step(key[0]).items[key[1]]
        if item.state is StepState.RUNNING and item.reason != why:
            run = _with_item(run, key, replace(item, reason=why))
    for step in run.steps:
        said = next((each.reason for each in step.items if each.state is StepState.RUNNING and each.reason), "")
        if step.state is StepState.RUNNING and step.reason != said:
            run = _with_step(run, replace(step, reason=said))
    return run


def next_wake(pipeline: Pipeline, run: Run) -> datetime | None:
    """When there is something to do though nothing happens: a retry is due, or the run's time is over."""
    retries = [item.not_before for step in run.steps for item in step.items if item.state is StepState.WAITING]
    moments = [moment for moment in retries if moment is not None]
    if run.started_at is not None and run.cancelled_by is None:
        moments.append(run.started_at + timedelta(seconds=pipeline.timeout_seconds))
    return min(moments, default=None)


def running(run: Run) -> Iterator[ItemKey]:
    for step in run.steps:
        for number, item in enumerate(step.items):
            if item.state is StepState.RUNNING:
                yield step.name, number


def names_for(pipeline: Pipeline, run: Run, results: Results) -> dict[str, Any]:
    """What expressions may refer to."""
    return {
        "inputs": dict(run.inputs),
        "run": {
            "id": run.id,
            "pipeline": pipeline.name,
            "trigger": run.trigger,
            "created_at": run.created_at.isoformat(),
            "created_by": run.owner.name,
        },
        "steps": {step.name: _shown(step, results) for step in run.steps},
    }


def action_of(step: PipelineStep, run: Run, key: ItemKey, pipeline: Pipeline, results: Results) -> Mapping[str, Any]:
    """What an item does, with the values of its expressions. Raises ExpressionError."""
    names = names_for(pipeline, run, results)
    if step.for_each is not None:
        names |= {"item": _list(step, names)[key[1]], "index": key[1]}
    rendered: Mapping[str, Any] = render(step.action, names)
    return rendered


# --- the parts of a round ------------------------------------------------------------------------------------------


def _stopped(pipeline: Pipeline, run: Run, now: datetime) -> Run:
    """After a cancellation, or when its time is over, nothing more begins."""
    if run.started_at is not None and run.cancelled_by is None:
        if now < run.started_at + timedelta(seconds=pipeline.timeout_seconds):
            return run
        run = replace(run, cancelled_by=TIMEOUT, reason="took longer than its timeout", updated_at=now)
    if run.cancelled_by is None:
        return run
    reason = "its run was stopped"
    steps = []
    for step in run.steps:
        items = tuple(
            _moved(item, StepTrigger.CANCELLED, now, reason) if item.state is StepState.WAITING else item
            for item in step.items
        )
        stopped = replace(step, items=items)
        is_waiting = step.state is StepState.WAITING
        steps.append(_step_moved(stopped, StepTrigger.CANCELLED, now, reason) if is_waiting else stopped)
    return replace(run, steps=tuple(steps))


def _begun(run: Run, step: PipelineStep, results: Results, now: datetime) -> Run:
    """Decides about a step that waits, once those before it have ended."""
    current = run.step(step.name)
    before = [run.step(name) for name in step.needs]
    if current.state is not StepState.WAITING or any(each.state not in STEP_ENDED for each in before):
        return run
    reason = _refusal(step, before, run)
    if reason is not None:
        return _with_step(run, _step_moved(current, StepTrigger.SKIPPED, now, reason))
    names = _names(run, results)
    try:
        if step.condition is not None and not is_true(evaluate(parse(step.condition), names)):
            return _with_step(run, _step_moved(current, StepTrigger.SKIPPED, now, "its condition is false"))
        count = 1 if step.for_each is None else len(_list(step, names))
    except ExpressionError as error:
        return _with_step(run, _step_moved(current, StepTrigger.FAILED, now, str(error)))
    started = _step_moved(current, StepTrigger.STARTED, now, "")
    return _with_step(run, replace(started, items=(ItemRun(),) * count, is_list=step.for_each is not None))


def _refusal(step: PipelineStep, before: list[StepRun], run: Run) -> str | None:
    """Why it is skipped because of the steps before it."""
    bad = [each.name for each in before if each.state in (StepState.FAILED, StepState.CANCELLED)]
    skipped = [each.name for each in before if each.state is StepState.SKIPPED]
    match step.after:
        case After.ANY:
            return None
        case After.FAILURE:
            return None if bad else "no step before it failed"
        case After.SUCCESS if bad:
            return f"{bad[0]} {'failed' if run.step(bad[0]).state is StepState.FAILED else 'was cancelled'}"
        case After.SUCCESS if skipped:
            return f"{skipped[0]} was skipped"
    return None


def _started(run: Run, step: PipelineStep, now: datetime) -> Run:
    """Begins as many items as may run at once."""
    current = run.step(step.name)
    if current.state is not StepState.RUNNING or run.cancelled_by is not None:
        return run
    everywhere = sum(1 for _ in running(run))
    here = sum(item.state is StepState.RUNNING for item in current.items)
    items = list(current.items)
    for number, item in enumerate(items):
        if here >= step.parallel or everywhere >= PARALLEL_MAX:
            break
        if item.state is StepState.WAITING and (item.not_before is None or item.not_before <= now):
            items[number] = replace(
                _moved(item, StepTrigger.STARTED, now, ""),
                attempt=item.attempt + 1,
                started_at=now,
                not_before=None,
                reference="",
            )
            here, everywhere = here + 1, everywhere + 1
    return _with_step(run, replace(current, items=tuple(items)))


def _closed(run: Run, step: PipelineStep, now: datetime) -> Run:
    current = run.step(step.name)
    states = [item.state for item in current.items]
    if current.state is not StepState.RUNNING or any(state not in STEP_ENDED for state in states):
        return run
    failed = [number for number, state in enumerate(states) if state is StepState.FAILED]
    if failed:
        reason = current.items[failed[0]].reason
        if current.is_list:
            reason = f"{len(failed)} of {len(states)} items failed; the first: {reason}"
        return _with_step(run, _step_moved(current, StepTrigger.FAILED, now, reason))
    if StepState.CANCELLED in states:
        return _with_step(run, _step_moved(current, StepTrigger.CANCELLED, now, "its run was stopped"))
    return _with_step(run, _step_moved(current, StepTrigger.SUCCEEDED, now, ""))


def _ended(pipeline: Pipeline, run: Run, results: Results, now: datetime) -> Run:
    if any(step.state not in STEP_ENDED for step in run.steps):
        return run
    if run.cancelled_by is not None and run.cancelled_by != TIMEOUT:
        return _stepped(run, RunTrigger.CANCELLED, f"cancelled by {run.cancelled_by}", now)
    why = "took longer than its timeout" if run.cancelled_by else _failure_of(pipeline, run)
    outputs: dict[str, Any] = {}
    if why is None:
        try:
            outputs = render(pipeline.outputs, names_for(pipeline, run, results))
        except ExpressionError as error:
            why = f"an output has no value: {error}"
    if len(json.dumps(outputs)) > OUTPUT_BYTES_MAX:
        outputs, why = {}, "its outputs are too large"
    if why is not None:
        return _stepped(run, RunTrigger.FAILED, why, now)
    return _stepped(replace(run, outputs=outputs), RunTrigger.SUCCEEDED, "", now)


def _failure_of(pipeline: Pipeline, run: Run) -> str | None:
    for step in pipeline.steps:
        found = run.step(step.name)
        if found.state is StepState.FAILED and not step.allow_failure:
            return f"step {step.name} failed: {found.reason}"
    return None


# --- small things --------------------------------------------------------------------------------------------------


def _list(step: PipelineStep, names: Mapping[str, Any]) -> list[Any]:
    assert step.for_each is not None
    found = evaluate(parse(step.for_each), names)
    if not isinstance(found, list):
        raise ExpressionError("for_each must be a list.")
    if len(found) > ITEMS_MAX:
        raise ExpressionError(f"for_each has {len(found)} items, and {ITEMS_MAX} are allowed.")
    return found


def _names(run: Run, results: Results) -> dict[str, Any]:
    """For conditions and lists, which know no item."""
    return names_for(Pipeline(run.pipeline, ()), run, results)


def _shown(step: StepRun, results: Results) -> dict[str, Any]:
    outputs = [results.get((step.name, number), NO_RESULT).output for number in range(len(step.items))]
    shown: dict[str, Any] = {"state": step.state.value, "output": None}
    if step.is_list:
        shown["output"] = outputs
        shown["items"] = [
            {"state": item.state.value, "output": output} for item, output in zip(step.items, outputs, strict=True)
        ]
    elif outputs:
        shown["output"] = outputs[0]
    return shown


def _oversize(result: ItemResult, before: Results) -> Failure | None:
    size = len(json.dumps(result.output))
    if size > OUTPUT_BYTES_MAX:
        return Failure(TOO_LARGE, f"Its output has {size} bytes, and {OUTPUT_BYTES_MAX} are kept")
    total = size + sum(len(json.dumps(each.output)) for each in before.values())
    if total > OUTPUTS_BYTES_MAX:
        return Failure(TOO_LARGE, f"The outputs of the run have {total} bytes, and {OUTPUTS_BYTES_MAX} are kept")
    return None


def _moved(item: ItemRun, trigger: StepTrigger, now: datetime, reason: str) -> ItemRun:
    state = _after(item.state, trigger)
    return replace(item, state=state, reason=reason, finished_at=now if state in STEP_ENDED else None)


def _step_moved(step: StepRun, trigger: StepTrigger, now: datetime, reason: str) -> StepRun:
    state = _after(step.state, trigger)
    begun = now if state is StepState.RUNNING else step.started_at
    return replace(
        step, state=state, reason=reason, started_at=begun, finished_at=now if state in STEP_ENDED else None
    )


def _after(state: StepState, trigger: StepTrigger) -> StepState:
    stepped = STEP_STATES.step(state, trigger, Actor.CENTRAL)
    assert isinstance(stepped, Stepped)
    return stepped.state


def _stepped(run: Run, trigger: RunTrigger, reason: str, now: datetime) -> Run:
    stepped = RUN_STATES.step(run.state, trigger, Actor.CENTRAL)
    end = now if stepped.state in RUN_ENDED else None
    return replace(run, state=stepped.state, reason=reason, finished_at=end, updated_at=now)


def _with_step(run: Run, step: StepRun) -> Run:
    return replace(run, steps=tuple(step if each.name == step.name else each for each in run.steps))


def _with_item(run: Run, key: ItemKey, item: ItemRun) -> Run:
    name, number = key
    step = run.step(name)
    items = tuple(item if place == number else each for place, each in enumerate(step.items))
    return _with_step(run, replace(step, items=items))
