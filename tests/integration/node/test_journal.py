"""The journal on a real disk."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Progress, Result
from homeport.core.node.entry import JournalEntry, OrderOutcome
from homeport.errors import Conflict, PermanentError, Refused, WorkFailed
from homeport.node.journal.journal import NOTES_KEPT, Journal
from homeport.node.journal.records import dump_order
from homeport.vocabulary import Code, Step
from tests.support.builders import deployment_id
from tests.support.orders import a_component, to_apply, to_remove

pytestmark = pytest.mark.anyio


def ended(order: Order, failure: Failure | None = None) -> Result:
    at = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)
    return Result(order.deployment_id, order.generation, order.kind, failure is None, at, failure)


async def test_everything_is_found_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    order = to_apply(1, a_component("db", wait=False, fail="x"), a_component("web"))
    await journal.accept([order])
    await journal.finish(ended(order))
    newer = to_apply(2, a_component("web", "2.0.0"))
    await journal.accept([newer])
    await journal.finish(ended(newer, Failure("CODE", "message", "web")), keeps_good=True)
    entries, outbox = dict(journal.deployments), dict(journal.outbox)
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.deployments == entries
    assert again.outbox == outbox
    entry = again.deployments[deployment_id()]
    assert entry.outcome is OrderOutcome.FAILED
    assert entry.good == entry.kept_release == order.release
    assert entry.components == {"db", "web"}
    again.close()


async def test_sequences_are_never_reused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    order = to_apply(1)
    await journal.accept([order])
    await journal.finish(ended(order))
    await journal.acknowledge(1)
    assert not journal.outbox
    journal.close()
    journal = Journal(tmp_path / "journal")
    await journal.repeat(order.key)
    await journal.repeat(order.key)
    assert list(journal.outbox) == [3]
    journal.close()


async def test_one_result_of_each_deployment_waits_and_it_is_the_newest(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for generation in range(1, 30):
        for number in (1, 2):
            order = to_apply(generation, key=deployment_id(number))
            await journal.accept([order])
            await journal.finish(ended(order, Failure("EXITED", "it ended", "web")))
    assert [(each.deployment_id, each.generation) for each in journal.outbox.values()] == [
        (deployment_id(1), 29),
        (deployment_id(2), 29),
    ]
    kept = dict(journal.outbox)
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.outbox == kept
    again.close()


async def test_notes_of_drift_are_found_again_and_the_oldest_give_way(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    order = to_apply(1)
    await journal.accept([order])
    await journal.finish(ended(order))
    at = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    notes = [
        Progress(order.deployment_id, order.generation, Step.DRIFTED, "web", f"drift {number}", at)
        for number in range(NOTES_KEPT + 5)
    ]
    async with anyio.create_task_group() as tasks:
        for note in notes:
            tasks.start_soon(journal.note, note)
    journal.close()
    again = Journal(tmp_path / "journal")
    (result, *kept) = again.outbox.values()
    assert result == ended(order)
    assert kept == notes[5:]
    await again.acknowledge(max(again.outbox))
    assert not again.outbox
    again.close()


async def test_a_result_that_was_overtaken_by_a_newer_order_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    await journal.accept([to_apply(1)])
    await journal.accept([to_remove(2)])
    await journal.finish(ended(to_apply(1)))
    assert not journal.outbox
    assert journal.deployments[deployment_id()].outcome is OrderOutcome.PENDING
    journal.close()


async def test_many_writers_share_commits_and_one_who_is_cancelled_harms_nobody(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    async with anyio.create_task_group() as tasks:
        for number in range(1, 201):
            tasks.start_soon(journal.accept, [to_apply(number, key=deployment_id(number))])
        async with anyio.create_task_group() as doomed:
            doomed.start_soon(journal.accept, [to_apply(999, key=deployment_id(999))])
            await anyio.lowlevel.checkpoint()
            doomed.cancel_scope.cancel()
    assert len(journal.deployments) == 201
    journal.close()


async def test_a_full_disk_is_said_by_code_and_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    order = to_apply(1)
    await journal.accept([order])
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count={pages}")
    large = to_apply(2, *(a_component(f"part-{number}" * 10) for number in range(500)))
    with pytest.raises(WorkFailed) as caught:
        await journal.accept([large])
    assert caught.value.code == Code.DISK_FULL
    assert journal.deployments[order.deployment_id].order == order
    journal._connection.execute("PRAGMA max_page_count=1000000")
    await journal.accept([large])
    assert journal.deployments[order.deployment_id].order == large
    journal.close()


async def test_a_second_node_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with pytest.raises(Conflict, match="Another node already uses"):
        Journal(tmp_path / "journal")
    journal.close()


async def test_a_damaged_journal_is_said_in_a_sentence_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"this is no database, and it is long enough to be seen as none" * 20)
    with pytest.raises(PermanentError, match="is damaged") as caught:
        Journal(tmp_path / "journal")
    assert caught.value.hint
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


@pytest.mark.parametrize(
    "spoilt", ['{"kind": "dance"}', "", "null", "[]", "[" * 100_000, '{"generation": 1e999}', b"\xff{", b"\x00"]
)
async def test_a_row_that_cannot_be_read_is_set_aside_and_the_others_stay(
    tmp_path: Path, spoilt: str | bytes
) -> None:
    journal = Journal(tmp_path / "journal")
    good, bad = to_apply(1, key=deployment_id(1)), to_apply(2, key=deployment_id(2))
    await journal.accept([good, bad])
    await journal.finish(ended(good))
    await journal.finish(ended(bad))
    journal.close()
    connection = sqlite3.connect(tmp_path / "journal")
    order = 'UPDATE assignment SET "order" = CAST(? AS TEXT) WHERE id = ?'
    connection.execute(order, (spoilt, deployment_id(2)))
    connection.execute("UPDATE outbox SET result = 'nonsense' WHERE sequence = 1")
    connection.commit()
    connection.close()
    again = Journal(tmp_path / "journal")
    assert list(again.deployments) == [deployment_id(1)]
    assert list(again.outbox) == [2]
    assert len(again.set_aside) == 2
    assert deployment_id(2) in again.set_aside[0]
    again.close()
    third = Journal(tmp_path / "journal")
    assert third.set_aside == [], "said once"
    third.close()
    kept = sqlite3.connect(tmp_path / "journal").execute("SELECT count(*) FROM aside").fetchone()
    assert kept == (2,)


async def test_a_write_that_raises_anything_fails_by_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    good, bad = to_apply(1, key=deployment_id(1)), to_apply(2**70, key=deployment_id(2))
    failures: list[WorkFailed] = []

    async def accept(order: Order) -> None:
        try:
            await journal.accept([order])
        except WorkFailed as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for order in (good, bad, to_apply(3, key=deployment_id(3))):
            tasks.start_soon(accept, order)
    assert sorted(journal.deployments) == [deployment_id(1), deployment_id(3)]
    assert len(failures) == 1
    journal.close()


FORMER = """CREATE TABLE deployment (id TEXT PRIMARY KEY, generation INTEGER NOT NULL, kind TEXT NOT NULL,
outcome TEXT NOT NULL, "order" TEXT NOT NULL, result TEXT, good TEXT, keeps_good INTEGER NOT NULL,
components TEXT NOT NULL"""
"""The table of journals that knew deployments alone."""


@pytest.mark.parametrize("added", ["", ", unhealthy TEXT NOT NULL DEFAULT '', starts INTEGER NOT NULL DEFAULT 1"])
async def test_a_journal_of_an_earlier_version_is_read(tmp_path: Path, added: str) -> None:
    order = to_apply(1)
    connection = sqlite3.connect(tmp_path / "journal")
    connection.execute(f"{FORMER}{added})")
    connection.execute(
        'INSERT INTO deployment (id, generation, kind, outcome, "order", keeps_good, components)'
        " VALUES (?, 1, 'apply', 'pending', ?, 0, '[\"web\"]')",
        (order.deployment_id, dump_order(order)),
    )
    connection.commit()
    connection.close()
    journal = Journal(tmp_path / "journal")
    assert journal.deployments == {order.deployment_id: JournalEntry(order, components=frozenset({"web"}))}
    await journal.finish(ended(order))
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.deployments[order.deployment_id].outcome is OrderOutcome.SUCCEEDED
    again.close()


async def test_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match="was written by a newer version of Homeport"):
        Journal(path)
    assert path.read_bytes() == before
