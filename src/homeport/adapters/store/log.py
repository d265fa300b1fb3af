"""What happened: the event log, and the history of each deployment. Rows are only ever added here as values;
`appends` writes them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.border import Connection
from homeport.adapters.store.columns import from_json, to_json, utc
from homeport.adapters.store.instances import failure_columns, to_failure
from homeport.core.model.event import Event, HistoryEntry, HistoryLine, NewEvent
from homeport.vocabulary import Actor, DeploymentId, EventKind, Happening, State

_EVENTS = schema.events.c
_HISTORY = schema.history.c
_LARGEST = 2**63 - 1


async def find_events(
    connection: Connection, *, after: int, limit: int, deployment_id: DeploymentId | None
) -> Sequence[Event]:
    query = select(schema.events).where(_EVENTS.id > min(after, _LARGEST)).order_by(_EVENTS.id)
    if deployment_id is not None:
        query = query.where(_EVENTS.deployment_id == deployment_id)
    return [_event(row) for row in await connection.rows(query.limit(min(limit, _LARGEST)))]


async def last_event_id(connection: Connection) -> int:
    row = await connection.first(select(func.max(_EVENTS.id)))
    return 0 if row is None or row[0] is None else int(row[0])


async def find_history(connection: Connection, deployment_id: DeploymentId) -> Sequence[HistoryEntry]:
    query = select(schema.history).where(_HISTORY.deployment_id == deployment_id).order_by(_HISTORY.id)
    return [_entry(row) for row in await connection.rows(query)]


async def find_history_after(
    connection: Connection, after: int, *, limit: int, deployment_id: DeploymentId | None
) -> Sequence[HistoryLine]:
    query = select(schema.history).where(_HISTORY.id > min(after, _LARGEST)).order_by(_HISTORY.id)
    if deployment_id is not None:
        query = query.where(_HISTORY.deployment_id == deployment_id)
    return [HistoryLine(row.id, _entry(row)) for row in await connection.rows(query.limit(limit))]


async def trim_events(connection: Connection, keep: int) -> None:
    """The newest event always stays: it remembers the number that the next one counts from."""
    newest = await last_event_id(connection)
    await connection.run(delete(schema.events).where(_EVENTS.id <= newest - max(keep, 1)))


def event_row(event: NewEvent) -> dict[str, Any]:
    return {
        "kind": event.kind.value,
        "at": utc(event.at),
        "message": event.message,
        "site": event.site,
        "deployment_id": event.deployment_id,
        "node_id": event.node_id,
        "data": to_json(event.data),
    }


def history_row(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "deployment_id": entry.deployment_id,
        "node_id": entry.node_id,
        "incarnation": entry.incarnation,
        "before": entry.before.value,
        "after": entry.after.value,
        "happening": entry.happening.value,
        "actor": entry.actor.value,
        "reason": entry.reason,
        "at": utc(entry.at),
        "revision": entry.revision,
        "verdict": entry.verdict,
        **failure_columns(entry.failure),
    }


def _event(row: Row[Any]) -> Event:
    event = NewEvent(
        kind=EventKind(row.kind),
        at=row.at,
        message=row.message,
        site=row.site,
        deployment_id=row.deployment_id,
        node_id=row.node_id,
        data=from_json(row.data),
    )
    return Event(row.id, event)


def _entry(row: Row[Any]) -> HistoryEntry:
    return HistoryEntry(
        deployment_id=row.deployment_id,
        node_id=row.node_id,
        incarnation=row.incarnation,
        before=State(row.before),
        after=State(row.after),
        happening=Happening(row.happening),
        actor=Actor(row.actor),
        reason=row.reason,
        at=row.at,
        revision=row.revision,
        failure=to_failure(row),
        verdict=row.verdict,
    )
