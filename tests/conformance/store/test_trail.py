"""The audit trail's ends and filters, alike on both databases."""

from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.audit.chain import Ends, Mark, first_fault
from homeport.core.model.access import AuditResult, NewAudit
from homeport.ports import AUDIT, AuditFilter, Cut, Store

pytestmark = pytest.mark.anyio

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


def said(number: int, actor: str = "ada", action: str = "nodes.remove") -> NewAudit:
    detail = {"status": 204, "text": "ünï → ✓", "list": [1, True, None], "deep": {"b": 1, "a": 1.5}}
    return NewAudit(AT + timedelta(days=number), actor, "admin", "::1", action, str(number), AuditResult.DONE, detail)


async def test_an_empty_trail_begins_and_ends_at_nothing(store: Store) -> None:
    async with store.read() as reader:
        ends = await reader.audit_ends()
        assert ends == Ends(Mark(), Mark())
        assert first_fault(await reader.audit(after=0, limit=10), ends) is None


async def test_whatever_is_said_has_the_same_hash_when_it_is_read(store: Store) -> None:
    await store.write(lambda tx: tx.append_audit([said(number) for number in range(5)]))
    async with store.read() as reader:
        entries, ends = await reader.audit(after=0, limit=10), await reader.audit_ends()
    assert [entry.entry for entry in entries] == [said(number) for number in range(5)]
    assert ends == Ends(Mark(), Mark.of(entries[-1]))
    assert first_fault(entries, ends) is None


async def test_trimming_moves_the_beginning(store: Store) -> None:
    await store.write(lambda tx: tx.append_audit([said(number) for number in range(5)]))
    await store.write(lambda tx: tx.trim_audit(AT + timedelta(days=2)))
    await store.write(lambda tx: tx.trim_audit(AT + timedelta(days=3)))
    async with store.read() as reader:
        entries, ends = await reader.audit(after=0, limit=10), await reader.audit_ends()
    assert [entry.position for entry in entries] == [4, 5]
    assert ends.base == Mark(3, entries[0].previous)
    assert first_fault(entries, ends) is None


async def test_entries_are_picked_by_person_action_and_time(store: Store) -> None:
    picked = [said(0), said(1, actor="bob"), said(2, action="nodes.approve"), said(3, action="nodes_x.y")]
    await store.write(lambda tx: tx.append_audit(picked))
    async with store.read() as reader:

        async def positions(where: AuditFilter) -> list[int]:
            return [entry.position for entry in (await reader.page(AUDIT, where, Cut(10, order="oldest"))).items]

        assert await positions(AuditFilter(actor="bob")) == [2]
        assert await positions(AuditFilter(action="nodes")) == [1, 2, 3]
        assert await positions(AuditFilter(action="nodes.approve")) == [3]
        assert await positions(AuditFilter(since=AT + timedelta(days=2))) == [3, 4]
