"""The chain of a run, as `homeport why run/ID` prints it."""

from dataclasses import replace
from datetime import UTC, datetime

from homeport.core.model.caller import Role
from homeport.core.model.instance import Failure
from homeport.core.pipelines.model import ItemRun, Owner, Run, StepRun
from homeport.core.pipelines.why import why_run
from homeport.vocabulary import RunId, RunState, StepState

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FAILURE = Failure("EXITED", "code 3")
RUN = Run(
    RunId("r-1"), "chain", None, RunState.RUNNING, 1, "", {}, Owner("ann", Role.OPERATOR), "schedule", NOW, NOW,
    steps=(
        StepRun("first", StepState.SUCCEEDED, (ItemRun(StepState.SUCCEEDED, 1, reference="job-1"),)),
        StepRun("each", StepState.RUNNING, (ItemRun(StepState.RUNNING, 2, failure=FAILURE),), True),
        StepRun("last", reason="waits for each"),
    ),
)  # fmt: skip


def test_each_step_says_why_it_is_as_it_is_and_what_comes_next() -> None:
    chain = [f"{each.step}: {each.what}{f' ({each.why})' if each.why else ''}" for each in why_run(RUN)]
    assert chain == [
        "run: pipeline chain for ann (started by its schedule)",
        "step: first is SUCCEEDED",
        "item: first: SUCCEEDED, carried out by job-1",
        "step: each is RUNNING",
        f"item: each[0]: attempt 2 is RUNNING ({FAILURE})",
        "step: last is WAITING (waits for each)",
        "next: each ends, then what needs it begins",
    ]
    ended = replace(RUN, state=RunState.FAILED, reason="each failed", cancelled_by="bob")
    assert [each.what for each in why_run(ended)][-2:] == [
        "bob asked to cancel it",
        "nothing: it is FAILED, each failed",
    ]
