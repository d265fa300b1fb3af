"""Whole plans as an operator reads them with `homeport sites plan`, each in a file of its own beside this one.

`UPDATE_GOLDEN=1 pytest tests/unit/core/reconcile/test_golden.py` writes them anew; the change is then read like code.
"""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from homeport.core.model.deployment import Desired, Hold
from homeport.core.model.instance import Failure, Instance
from homeport.core.model.node import Node
from homeport.core.reconcile.outlook import outlook
from homeport.core.reconcile.plan import View
from homeport.vocabulary import UNPLACED, Code, Liveness, ProfileType, State
from tests.support.builders import HOME, NOW, a_desired, a_node, an_instance, revision

FOLDER = Path(__file__).parent / "golden"
HOLD = Hold(HOME, None, "a shift is running", "anna", NOW, NOW + timedelta(hours=8))
LATER = NOW + timedelta(seconds=30)


def a_site(wanted: list[Desired], nodes: list[Node], there: list[Instance], *, holds: tuple[Hold, ...] = ()) -> View:
    past = [a_desired(number, at=at) for number in range(1, 6) for at in ("first", "second")]
    return View(
        {item.id: item for item in wanted},
        frozenset(),
        {node.id: node for node in nodes},
        {item.key: item for item in there},
        holds=holds,
        past={(item.id, item.revision): item for item in past},
    )


def failed(number: int, node: str, code: Code, **changes: object) -> Instance:
    item = an_instance(number, node, state=State.FAILED, failure=Failure(code, "it did not work"))
    return replace(item, **changes)  # type: ignore[arg-type] # names of fields, by the tests below


SITES = {
    "first-install": a_site([a_desired(1), a_desired(2, count=1)], [a_node("a"), a_node("b")], []),
    "all-is-well": a_site([a_desired(1)], [a_node("a"), a_node("b")], [an_instance(1, "a"), an_instance(1, "b")]),
    "update-of-one-and-removal-of-another": a_site(
        [a_desired(1, at="second")], [a_node("a")], [an_instance(1, "a"), an_instance(2, "a")]
    ),
    "update-that-no-node-can-take": a_site(
        [a_desired(1, at="second", memory="900Gi"), a_desired(2, at="second", nodes=("nothere",))],
        [a_node("a"), a_node("b", types=(ProfileType.HELM,))],
        [an_instance(1, "a"), an_instance(2, "a")],
    ),
    "drain-with-a-move": a_site(
        [a_desired(1, count=1), a_desired(2)],
        [a_node("a", drain="new disk"), a_node("b")],
        [an_instance(1, "a"), an_instance(2, "a"), an_instance(2, "b")],
    ),
    "drain-of-the-only-node": a_site([a_desired(1)], [a_node("a", drain="new disk")], [an_instance(1, "a")]),
    "move-under-way": a_site(
        [a_desired(1, count=1)],
        [a_node("a", drain="new disk"), a_node("b")],
        [an_instance(1, "a"), replace(an_instance(1, "b", state=State.INSTALLING, runs=False), step="pulling 61 %")],
    ),
    "held-update": a_site(
        [a_desired(1, at="second"), a_desired(2)], [a_node("a")], [an_instance(1, "a")], holds=(HOLD,)
    ),
    "lost-node": a_site(
        [a_desired(1), a_desired(2, count=1)],
        [a_node("a", liveness=Liveness.LOST, seen=NOW - timedelta(hours=1)), a_node("b")],
        [an_instance(1, "a", state=State.UPDATING), an_instance(2, "a")],
    ),
    "after-failures": a_site(
        [a_desired(1), a_desired(2), a_desired(3), a_desired(4, at="second")],
        [a_node("a")],
        [
            failed(1, "a", Code.IMAGE_PULL_FAILED, next_at=LATER),
            failed(2, "a", Code.IMAGE_PULL_FAILED, next_at=NOW),
            failed(3, "a", Code.EXITED),
            failed(4, "a", Code.EXITED, revision=revision("second"), next_at=NOW),
        ],
    ),
    "no-node-suits": a_site(
        [a_desired(1, kind=ProfileType.HELM), a_desired(2, selector="gpu", count=2)],
        [a_node("a"), a_node("b"), a_node("c"), a_node("d"), a_node("e", labels={"gpu": "yes"})],
        [an_instance(3, UNPLACED, state=State.FAILED, runs=False)],
    ),
}


def as_read(view: View) -> str:
    names = {item.id: item.name for item in view.desired.values()}
    rows = [("ACTION", "DEPLOYMENT", "NODE", "STATUS", "WHY")]
    rows += [
        (each.action, names.get(each.deployment_id, "(its file is gone)"), each.node_id or "-", each.status, each.why)
        for each in outlook(view, NOW)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[4])) for row in rows
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", SITES)
def test_a_plan_reads_as_it_did(name: str) -> None:
    path, text = FOLDER / f"{name}.txt", as_read(SITES[name])
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_text_belongs_to_a_site() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == SITES.keys()
