"""The audit trail. Where it begins and ends is noted besides, so that a line missing at either end shows too."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, delete, or_, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.role import find_value, set_value
from homeport.core.audit import Ends, Mark, append
from homeport.core.model.access import AuditEntry, AuditResult, NewAudit

_AUDIT = schema.audit.c
_BASE: Final = "audit_base"
_HEAD: Final = "audit_head"


async def find_audit(
    connection: Connection,
    *,
    after: int,
    limit: int,
    actor: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    newest: bool = False,
) -> Sequence[AuditEntry]:
    query = select(schema.audit).where(_AUDIT.position > after).limit(limit)
    if actor is not None:
        query = query.where(_AUDIT.actor == actor)
    if action is not None:
        query = query.where(or_(_AUDIT.action == action, _AUDIT.action.startswith(f"{action}.", autoescape=True)))
    if since is not None:
        query = query.where(_AUDIT.at >= since)
    found = await connection.rows(query.order_by(_AUDIT.position.desc() if newest else _AUDIT.position))
    return [_entry(row) for row in (reversed(found) if newest else found)]


async def find_last_audit(connection: Connection) -> AuditEntry | None:
    row = await connection.first(select(schema.audit).order_by(_AUDIT.position.desc()).limit(1))
    return None if row is None else _entry(row)


async def find_ends(connection: Connection) -> Ends:
    base, head = await find_value(connection, _BASE), await find_value(connection, _HEAD)
    return Ends(Mark() if base is None else Mark.parse(base), Mark() if head is None else Mark.parse(head))


async def append_audit(connection: Connection, entries: Sequence[NewAudit]) -> None:
    if not entries:
        return
    chained = append(await find_last_audit(connection), entries)
    await connection.run(schema.audit.insert(), [_values(item) for item in chained])
    await set_value(connection, _HEAD, str(Mark.of(chained[-1])))


async def trim_audit(connection: Connection, before: datetime) -> None:
    """The newest entry stays whatever its age: the next one has to be chained to it."""
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
    """Whatever somebody wrote into the table past us is read too, for `verify` to find it."""
    try:
        result, detail = AuditResult(row.result), from_json(row.detail)
    except ValueError:
        result, detail = AuditResult.FAILED, {"unreadable": True}
    entry = NewAudit(
        at=row.at,
        actor=row.actor,
        role=row.role,
        address=row.address,
        action=row.action,
        target=row.target,
        result=result,
        detail=detail,
    )
    return AuditEntry(row.position, entry, row.previous, row.hash)
