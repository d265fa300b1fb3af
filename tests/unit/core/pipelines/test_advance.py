"""What follows in a run: order, conditions, lists, retries, time limits, cancellation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from homeport.catalog.pipeline import parse_pipeline
from homeport.core.model.caller import Role
from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome, action_of, advance, finished, next_wake, running, with_waits
from homeport.core.pipelines.model import ItemKey, ItemResult, Owner, Run
from homeport.vocabulary import RunId, RunState, StepState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = Failure("EXITED", "It ended with exit code 1")


class Runs:
    """A run, and what it takes to carry it on."""

    def __init__(self, steps: str, inputs: dict[str, Any] | None = None) -> None:
        self.now = NOW
        self.results: dict[ItemKey, ItemResult] = {}
        self.pipeline = parse_pipeline(f"name: p\n{steps}".encode(), "p.yaml")
        self.run = Run(
            RunId("r"), "p", None, RunState.PENDING, 1, "", inputs or {}, Owner("ann", Role.ADMIN), "hand", NOW, NOW
        )
        self.go()

    def go(self, seconds: float = 0) -> None:
        self.now += timedelta(seconds=seconds)
        self.run = advance(self.pipeline, self.run, self.results, self.now)

    def end(
        self, step: str, number: int = 0, *, output: Any = None, failure: Failure | None = None, **how: Any
    ) -> None:
        outcome = Outcome(ItemResult(output), failure, **how)
        self.run = finished(self.pipeline, self.run, (step, number), outcome, results=self.results, now=self.now)
        self.results[step, number] = outcome.result
        self.go()

    @property
    def states(self) -> dict[str, str]:
        return {step.name: step.state.value for step in self.run.steps}

    @property
    def under_way(self) -> list[ItemKey]:
        return list(running(self.run))


def test_steps_run_in_order_and_what_needs_nothing_at_once() -> None:
    runs = Runs("steps: {a: {job: {image: x}}, b: {job: {image: x}}, c: {needs: [a, b], job: {image: x}}}")
    assert runs.under_way == [("a", 0), ("b", 0)]
    runs.end("a")
    assert runs.under_way == [("b", 0)]
    runs.end("b")
    assert runs.under_way == [("c", 0)]
    runs.end("c")
    assert (runs.run.state, runs.run.reason) == (RunState.SUCCEEDED, "")


def test_a_failure_skips_what_needs_it_and_fails_the_run_when_the_rest_has_ended() -> None:
    runs = Runs(
        """
steps:
  a: {job: {image: x}}
  b: {needs: [a], job: {image: x}}
  c: {needs: [b], job: {image: x}}
  repair: {needs: [a], after: failure, job: {image: x}}
  always: {needs: [b, repair], after: any, job: {image: x}}
"""
    )
    runs.end("a", failure=BROKEN)
    assert runs.states == {
        **{"a": "FAILED", "b": "SKIPPED", "c": "SKIPPED", "repair": "RUNNING", "always": "WAITING"},
    }
    runs.end("repair")
    runs.end("always")
    assert runs.run.state is RunState.FAILED
    assert runs.run.reason == "step a failed: It ended with exit code 1 (EXITED)"
    assert runs.run.step("b").reason == "a failed"


def test_a_step_that_may_fail_does_not_fail_the_run_and_a_false_condition_skips() -> None:
    runs = Runs(
        """
inputs: {on: {type: boolean, default: false}}
steps:
  a: {allow_failure: true, job: {image: x}}
  b: {if: inputs.on, job: {image: x}}
""",
        {"on": False},
    )
    runs.end("a", failure=BROKEN)
    assert runs.run.state is RunState.SUCCEEDED
    assert runs.run.step("b").reason == "its condition is false"


def test_a_list_is_gone_over_with_a_limit_and_its_outputs_are_a_list() -> None:
    runs = Runs(
        """
inputs: {names: {type: list}}
steps:
  each: {for_each: inputs.names, parallel: 2, job: {image: x, command: ["${{ item }}", "${{ index }}"]}}
outputs: {codes: "${{ [one.code for one in steps.each.output] }}", states: "${{ steps.each.items[0].state }}"}
""",
        {"names": ["p", "q", "r"]},
    )
    assert runs.under_way == [("each", 0), ("each", 1)]
    step = runs.pipeline.step("each")
    assert action_of(step, runs.run, ("each", 1), runs.pipeline, runs.results)["command"] == ["q", 1]
    runs.end("each", 1, output={"code": 1})
    assert runs.under_way == [("each", 0), ("each", 2)]
    runs.end("each", 2, output={"code": 2})
    runs.end("each", 0, output={"code": 0})
    assert runs.run.outputs == {"codes": [0, 1, 2], "states": "SUCCEEDED"}


def test_an_empty_list_is_a_step_that_succeeds() -> None:
    assert Runs("steps: {a: {for_each: '[]', job: {image: x}}}").run.state is RunState.SUCCEEDED


@pytest.mark.parametrize("bad", ["range(257)", "'text'", "inputs.n + 1", "[1 for x in range(300)]"])
def test_a_list_that_is_none_or_too_long_fails_its_step(bad: str) -> None:
    runs = Runs(
        f'inputs: {{n: {{type: string}}}}\nsteps: {{a: {{for_each: "{bad}", job: {{image: x}}}}}}', {"n": "1"}
    )
    assert runs.states == {"a": "FAILED"}
    assert runs.run.state is RunState.FAILED


def test_an_attempt_that_failed_is_repeated_later_each_time_and_then_given_up() -> None:
    runs = Runs("steps: {a: {retries: 2, backoff: 10s, job: {image: x}}}")
    for attempt, seconds in ((1, 10), (2, 20)):
        assert runs.run.step("a").items[0].attempt == attempt
        runs.end("a", failure=BROKEN)
        assert runs.under_way == []
        assert next_wake(runs.pipeline, runs.run) == runs.now + timedelta(seconds=seconds)
        runs.go(seconds)
        assert runs.under_way == [("a", 0)]
    runs.end("a", failure=BROKEN)
    assert runs.states == {"a": "FAILED"}


def test_what_would_fail_again_is_not_repeated() -> None:
    runs = Runs("steps: {a: {retries: 2, job: {image: x}}}")
    runs.end("a", failure=BROKEN, is_final=True)
    assert runs.states == {"a": "FAILED"}


def test_a_cancelled_run_begins_nothing_and_ends_when_what_is_under_way_has_stopped() -> None:
    runs = Runs("steps: {a: {job: {image: x}}, b: {needs: [a], job: {image: x}}, c: {retries: 1, job: {image: x}}}")
    runs.end("c", failure=BROKEN)
    runs.run = replace(runs.run, cancelled_by="bob")
    runs.go(1000)
    assert (runs.states["b"], runs.run.state) == ("CANCELLED", RunState.RUNNING)
    runs.end("a", failure=Failure("CANCELLED", ""), is_cancelled=True)
    assert (runs.run.state, runs.run.reason) == (RunState.CANCELLED, "cancelled by bob")
    assert {step.state for step in runs.run.steps} == {StepState.CANCELLED}


def test_a_run_over_its_time_fails() -> None:
    runs = Runs("timeout: 1m\nsteps: {a: {job: {image: x}}}")
    assert next_wake(runs.pipeline, runs.run) == NOW + timedelta(minutes=1)
    runs.go(60)
    runs.end("a", failure=Failure("CANCELLED", ""), is_cancelled=True)
    assert (runs.run.state, runs.run.reason) == (RunState.FAILED, "took longer than its timeout")


def test_an_output_that_is_too_large_fails_its_step() -> None:
    runs = Runs("steps: {a: {job: {image: x}}}")
    runs.end("a", output="x" * 300_000)
    assert "OUTPUT_TOO_LARGE" in runs.run.reason


def test_a_run_that_was_cancelled_before_it_began_never_begins() -> None:
    runs = Runs("steps: {a: {job: {image: x}}}")
    fresh = replace(runs.run, state=RunState.PENDING, steps=(), started_at=None, cancelled_by="bob")
    assert advance(runs.pipeline, fresh, {}, NOW).state is RunState.CANCELLED


def test_what_items_under_way_wait_for_is_said_by_their_step_until_they_begin() -> None:
    runs = Runs("steps: {a: {for_each: '[1, 2]', job: {command: [x]}}}")
    waiting = with_waits(runs.run, {("a", 1): "waits: a full queue"})
    assert (waiting.step("a").reason, waiting.step("a").items[1].reason) == ("waits: a full queue",) * 2
    assert with_waits(waiting, {("a", 0): ""}) == waiting
    assert with_waits(waiting, {("a", 1): ""}) == runs.run
    runs.run = waiting
    runs.end("a", 1)
    assert with_waits(runs.run, {}).step("a").reason == "", "the other one runs and waits for nothing"
    assert with_waits(runs.run, {("a", 1): "waits: a full queue"}).step("a").items == runs.run.step("a").items
