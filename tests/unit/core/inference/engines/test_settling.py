"""When a reload is over, and how."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from homeport.core.inference.engines.settling import Settling, settling
from homeport.core.model.instance import Failure, Instance
from homeport.vocabulary import DeploymentId, Digest, Generation, Incarnation, NodeId, State

OLD, NEW = Digest("sha256:old"), Digest("sha256:new")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUNS = Instance(
    deployment_id=DeploymentId("d"),
    node_id=NodeId("n"),
    incarnation=Incarnation(1),
    state=State.INSTALLED,
    version=1,
    generation=Generation(1),
    revision=NEW,
    running_revision=NEW,
    attempt=1,
    step="",
    failure=None,
    updated_at=NOW,
)
BROKEN = Failure("EXITED", "it cannot read the model")


@pytest.mark.parametrize(
    ("instances", "verdict"),
    [
        ([RUNS], Settling.DONE),
        ([], Settling.WAITING),
        ([replace(RUNS, revision=OLD, running_revision=OLD)], Settling.WAITING),
        ([RUNS, replace(RUNS, state=State.UPDATING, running_revision=OLD)], Settling.WAITING),
        ([replace(RUNS, state=State.FAILED, running_revision=OLD, next_at=NOW)], Settling.WAITING),
        ([replace(RUNS, state=State.FAILED, running_revision=OLD, failure=BROKEN)], Settling.FAILED),
        ([replace(RUNS, running_revision=OLD, revision=OLD, rejected_revision=NEW)], Settling.FAILED),
        ([RUNS, replace(RUNS, state=State.DELETED, running_revision=None)], Settling.DONE),
    ],
)
def test_a_reload_is_done_when_every_node_runs_it_and_failed_when_one_went_back(
    instances: list[Instance], verdict: Settling
) -> None:
    assert settling(NEW, instances)[0] is verdict


def test_the_nodes_own_reason_is_given() -> None:
    failed = replace(RUNS, state=State.FAILED, failure=BROKEN)
    assert settling(NEW, [failed]) == (Settling.FAILED, "n: it cannot read the model")
