"""The journal on a real disk."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from homeport.core.model.instance import Failure
from homeport.core.model.order import Order, Progress, Result
from homeport.core.node.entry import Outcome
from homeport.errors import Conflict, PermanentError, WorkFailed
from homeport.node.journal import NOTES_KEPT, Journal
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
    entries, outbox = dict(journal.entries), dict(journal.outbox)
    journal.close()
    again = Journal(tmp_path / "journal")
    assert again.entries == entries
    assert again.outbox == outbox
    entry = again.entries[deployment_id()]
    assert entry.outcome is Outcome.FAILED
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
    await journal.repeat(order.deployment_id)
    await journal.repeat(order.deployment_id)
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
    assert journal.entries[deployment_id()].outcome is Outcome.PENDING
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
    assert len(journal.entries) == 201
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
    assert journal.entries[order.deployment_id].order == order
    journal._connection.execute("PRAGMA max_page_count=1000000")
    await journal.accept([large])
    assert journal.entries[order.deployment_id].order == large
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
