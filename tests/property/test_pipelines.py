"""Any graph, any outcomes, any interruption: a run ends, nothing begins before what it needs, and a restart changes
nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from homeport.core.model.caller import Role
from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome, advance, finished, next_wake, running
from homeport.core.pipelines.expressions import evaluate, parse
from homeport.core.pipelines.functions import ExpressionError
from homeport.core.pipelines.graph import cycle, order
from homeport.core.pipelines.lifecycle import RUN_ENDED, STEP_ENDED
from homeport.core.pipelines.model import (
    After,
    ItemKey,
    ItemResult,
    Owner,
    Pipeline,
    PipelineStep,
    Run,
    StepKind,
)
from homeport.vocabulary import RunId, RunState, StepState
from homeport.wire.pipelines import run_from_json, run_to_json
from tests.support.examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROUNDS_MAX = 500


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    count = draw(st.integers(1, 6))
    steps = []
    for number in range(count):
        earlier = [f"s{each}" for each in range(number)]
        steps.append(
            PipelineStep(
                f"s{number}",
                StepKind.JOB,
                {},
                needs=tuple(draw(st.lists(st.sampled_from(earlier), unique=True)) if earlier else ()),
                after=draw(st.sampled_from(After)),
                for_each=draw(st.sampled_from([None, None, "[]", "[1, 2, 3]", "range(5)"])),
                parallel=draw(st.integers(1, 3)),
                retries=draw(st.integers(0, 2)),
                allow_failure=draw(st.booleans()),
            )
        )
    return Pipeline("p", tuple(steps))


@given(pipeline=pipelines(), data=st.data(), cancel_at=st.none() | st.integers(0, 20))
@settings(max_examples=examples(150), deadline=None)
def test_every_run_ends_and_keeps_to_its_graph(
    pipeline: Pipeline, data: st.DataObject, cancel_at: int | None
) -> None:
    owner = Owner("ann", Role.ADMIN)
    run = Run(RunId("r"), "p", None, RunState.PENDING, 1, "", {}, owner, "hand", NOW, NOW)
    results: dict[ItemKey, ItemResult] = {}
    now = NOW
    for round_number in range(ROUNDS_MAX):
        if round_number == cancel_at:
            run = replace(run, cancelled_by="bob")
        run = advance(pipeline, _stored(run), results, now)
        assert advance(pipeline, _stored(run), results, now) == run, "a restart changes nothing"
        _check(pipeline, run)
        if run.state in RUN_ENDED:
            assert not list(running(run))
            return
        under_way = list(running(run))
        if under_way:
            key = data.draw(st.sampled_from(under_way))
            failure = Failure("EXITED", "x") if data.draw(st.booleans()) else None
            outcome = Outcome(ItemResult({"n": 1}), failure, is_cancelled=run.cancelled_by is not None)
            run = finished(pipeline, run, key, outcome, results=results, now=now)
            results[key] = outcome.result
        else:
            wake = next_wake(pipeline, run)
            assert wake is not None, "nothing is under way, and nothing is waited for"
            now = max(now + timedelta(seconds=1), wake)
    raise AssertionError("the run did not end")


def _stored(run: Run) -> Run:
    """As the database gives it back."""
    columns = (
        "id",
        "pipeline",
        "site",
        "state",
        "version",
        "created_at",
        "updated_at",
        "finished_at",
        "cancelled_by",
    )
    return run_from_json(run_to_json(run), **{name: getattr(run, name) for name in columns})


def _check(pipeline: Pipeline, run: Run) -> None:
    states = {step.name: step.state for step in run.steps}
    for step in pipeline.steps:
        if run.steps and states[step.name] is StepState.RUNNING:
            found = run.step(step.name)
            assert all(states[name] in STEP_ENDED for name in step.needs)
            assert sum(item.state is StepState.RUNNING for item in found.items) <= step.parallel
            assert all(item.attempt <= step.retries + 1 for item in found.items)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3), max_size=6))
def test_a_graph_has_an_order_or_a_cycle(needs: dict[str, list[str]]) -> None:
    known = {name: [each for each in before if each in needs] for name, before in needs.items()}
    around = cycle(known)
    if around:
        assert all(after in known[name] for name, after in zip(around, (*around[1:], around[0]), strict=True))
        return
    found = order(known)
    assert sorted(found) == sorted(known)
    assert all(found.index(each) < found.index(name) for name, before in known.items() for each in before)


WORDS = [
    "inputs",
    ".",
    "a",
    "[",
    "]",
    "(",
    ")",
    "+",
    "*",
    "'x'",
    "9" * 18,
    "range(99)",
    "for",
    "x",
    "in",
    "if",
    ",",
    "{",
    "}",
    ":",
]
NAMES: dict[str, Any] = {"inputs": {"a": ["x" * 1000] * 50}, "steps": {}, "run": {}, "item": 1, "index": 0}


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join) | st.text(max_size=60))
def test_any_text_is_an_expression_with_a_small_value_or_an_error(text: str) -> None:
    try:
        value = evaluate(parse(text), NAMES)
    except ExpressionError as error:
        assert str(error)
    else:
        assert len(repr(value)) < 2_000_000
