"""The audit trail. Its first and last position are stored separately, so that a truncated trail is detected too."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Row, delete, or_, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import POSITION_MAX, object_from_json, storable, to_json
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder
from homeport.adapters.store.queries.role_state import find_value, set_value
from homeport.adapters.store.rows import check
from homeport.core.audit.chain import UNREADABLE, Ends, Mark, append, broken, cut_off
from homeport.core.model.access import AuditEntry, AuditResult, NewAudit
from homeport.errors import InvalidInput
from homeport.ports import AuditFilter

_AUDIT = schema.audit.c
_BASE: Final = "audit_base"
_HEAD: Final = "audit_head"
_FAULT: Final = "audit_fault"


async def find_last_audit(connection: SqlConnection) -> AuditEntry | None:
    query = select(schema.audit).where(_AUDIT.position < POSITION_MAX)
    row = await connection.first(query.order_by(_AUDIT.position.desc()).limit(1))
    return None if row is None else _entry(row)


async def find_ends(connection: SqlConnection) -> Ends:
    base, head = await find_value(connection, _BASE), await find_value(connection, _HEAD)
    return Ends(_mark(base), _mark(head), await find_value(connection, _FAULT))


def _mark(text: str | None) -> Mark:
    """One that cannot be read matches no entry, which is a fault that stays shown."""
    try:
        return Mark() if text is None else Mark.parse(text)
    except InvalidInput:
        return UNREADABLE


async def append_audit(connection: SqlConnection, entries: Sequence[NewAudit]) -> None:
    if not entries:
        return
    last, ends = await find_last_audit(connection), await find_ends(connection)
    fault = cut_off(last, ends.head)
    if fault is not None:
        entries = [broken(fault, entries[0].at), *entries]
        await set_value(connection, _FAULT, ends.fault or fault)
    chained = append(last, entries)
    await connection.run(schema.audit.insert(), [_values(item) for item in chained])
    await set_value(connection, _HEAD, str(Mark.of(chained[-1])))


async def trim_audit(connection: SqlConnection, before: datetime) -> None:
    """The newest entry stays at any age: the next one has to be chained to it."""
    last = await find_last_audit(connection)
    if last is None:
        return
    newest_old = await connection.first(
        select(schema.audit)
        .where(_AUDIT.at < before, _AUDIT.position < last.position)
        .order_by(_AUDIT.position.desc())
        .limit(1)
    )
    if newest_old is not None:
        await connection.run(delete(schema.audit).where(_AUDIT.position <= newest_old.position))
        await set_value(connection, _BASE, str(Mark.of(_entry(newest_old))))


def _values(item: AuditEntry) -> dict[str, Any]:
    return {
        "position": item.position,
        "at": item.entry.at,
        "actor": item.entry.actor,
        "role": item.entry.role,
        "address": item.entry.address,
        "action": item.entry.action,
        "target": item.entry.target,
        "result": item.entry.result.value,
        "detail": to_json(item.entry.detail),
        "previous": item.previous,
        "hash": item.hash,
    }


def _entry(row: Row[Any]) -> AuditEntry:
    """Also reads rows that were not written by us, for `verify` to find them: none may be left out of the chain."""
    try:
        check(row, schema.audit)
        result, detail = AuditResult(row.result), object_from_json(row.detail)
    except (ValueError, RecursionError):
        result, detail = AuditResult.FAILED, {"unreadable": True}
    texts = (row.actor, row.role, row.address, row.action, row.target, row.previous, row.hash)
    actor, role, address, action, target, previous, found = (
        storable(each if isinstance(each, str) else repr(each)) for each in texts
    )
    at = row.at if isinstance(row.at, datetime) else datetime.fromtimestamp(0, UTC)
    entry = NewAudit(at, actor, role, address, action, target, result, detail)
    return AuditEntry(row.position, entry, previous, found)


def _conditions(where: AuditFilter) -> Conditions:
    found: Conditions = [] if where.actor is None else [_AUDIT.actor == where.actor]
    if where.action is not None:
        of_noun = _AUDIT.action.startswith(f"{where.action}.", autoescape=True)
        found.append(or_(_AUDIT.action == where.action, of_noun))
    return found if where.since is None else [*found, _AUDIT.at >= where.since]


SOURCE: ListSource[AuditEntry, AuditFilter] = ListSource(
    table=schema.audit,
    record=_entry,
    conditions=_conditions,
    orders={
        "newest": SortOrder((_AUDIT.position,), descending=frozenset({"position"})),
        "oldest": SortOrder((_AUDIT.position,)),
    },
)
