"""The event log, and the history of each deployment. Rows are only built here as values; `appends` writes them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import POSITION_MAX, object_from_json, to_json, utc
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.fleet.instances import failure_columns, to_failure
from homeport.adapters.store.rows import records
from homeport.core.model.event import NOT_SAID, Event, HistoryEntry, HistoryLine, NewEvent, Subject
from homeport.vocabulary import Actor, DeploymentId, EventKind, LogStream, State, SubjectKind, Trigger

_EVENTS = schema.events.c
_HISTORY = schema.history.c
_LARGEST = 2**63 - 1


async def find_events(
    connection: SqlConnection, *, after: int, limit: int, deployment_id: DeploymentId | None, subject: Subject | None
) -> Sequence[Event]:
    query = (
        select(schema.events).where(_EVENTS.id > min(after, _LARGEST), _EVENTS.id < POSITION_MAX).order_by(_EVENTS.id)
    )
    if deployment_id is not None:
        query = query.where(_EVENTS.deployment_id == deployment_id)
    if subject is not None:
        query = query.where(_EVENTS.subject_kind == subject.kind, _EVENTS.subject_id == subject.id)
    return await records(connection, query.limit(min(limit, _LARGEST)), _event, schema.events)


async def has_event_about(connection: SqlConnection, kind: SubjectKind, *, after: int) -> bool:
    """The stream is named for its index: without it, all events of this kind would be searched."""
    stream = Subject(kind, "").stream.value
    query = select(_EVENTS.id).where(
        _EVENTS.stream == stream, _EVENTS.id > min(after, _LARGEST), _EVENTS.subject_kind == kind
    )
    return await connection.first(query.limit(1)) is not None


async def last_event_id(connection: SqlConnection) -> int:
    """From the sequencer, so that it is known even when the event itself was trimmed."""
    row = await connection.first(select(schema.counters.c.value).where(schema.counters.c.name == schema.events.name))
    return 0 if row is None else int(row.value)


async def find_history(
    connection: SqlConnection, deployment_id: DeploymentId, *, newest: int | None
) -> Sequence[HistoryEntry]:
    query = select(schema.history).where(_HISTORY.deployment_id == deployment_id)
    if newest is None:
        return await records(connection, query.order_by(_HISTORY.id), _entry, schema.history)
    found = await records(connection, query.order_by(_HISTORY.id.desc()).limit(newest), _entry, schema.history)
    return found[::-1]


async def find_history_after(
    connection: SqlConnection, after: int, *, limit: int, deployment_id: DeploymentId | None
) -> Sequence[HistoryLine]:
    query = (
        select(schema.history)
        .where(_HISTORY.id > min(after, _LARGEST), _HISTORY.id < POSITION_MAX)
        .order_by(_HISTORY.id)
    )
    if deployment_id is not None:
        query = query.where(_HISTORY.deployment_id == deployment_id)
    return await records(connection, query.limit(limit), _line, schema.history)


async def trim_events(connection: SqlConnection, stream: LogStream, *, keep: int, before: datetime | None) -> None:
    """Both search the cut from an end of the stream, so that the cost depends only on what is removed."""
    of_stream = _EVENTS.stream == stream.value
    newest = select(_EVENTS.id).where(of_stream).order_by(_EVENTS.id.desc())
    row = await connection.first(newest.offset(max(keep, 0)).limit(1))
    cut = 0 if row is None else int(row.id)
    if before is not None:
        young = select(_EVENTS.id).where(of_stream, _EVENTS.at >= utc(before)).order_by(_EVENTS.id)
        first = await connection.first(young.limit(1))
        cut = max(cut, (await last_event_id(connection)) if first is None else int(first.id) - 1)
    await connection.run(delete(schema.events).where(of_stream, _EVENTS.id <= cut))


def event_row(event: NewEvent) -> dict[str, Any]:
    subject = event.subject
    return {
        "kind": event.kind.value,
        "at": utc(event.at),
        "message": event.message,
        "site": event.site,
        "deployment_id": event.deployment_id,
        "node_id": event.node_id,
        "data": to_json(event.data),
        "subject_kind": str(subject.kind),  # a word of an enumeration costs SQLite's driver a conversion
        "subject_id": subject.id,
        "stream": subject.stream.value,
    }


def history_row(entry: HistoryEntry) -> dict[str, Any]:
    return {
        "deployment_id": entry.deployment_id,
        "node_id": entry.node_id,
        "incarnation": entry.incarnation,
        "before": entry.before.value,
        "after": entry.after.value,
        "happening": entry.trigger.value,
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
        data=object_from_json(row.data),
        subject=NOT_SAID if row.subject_kind is None else Subject(row.subject_kind, row.subject_id or ""),
    )
    return Event(row.id, event)


def _line(row: Row[Any]) -> HistoryLine:
    return HistoryLine(row.id, _entry(row))


def _entry(row: Row[Any]) -> HistoryEntry:
    return HistoryEntry(
        deployment_id=row.deployment_id,
        node_id=row.node_id,
        incarnation=row.incarnation,
        before=State(row.before),
        after=State(row.after),
        trigger=Trigger(row.happening),
        actor=Actor(row.actor),
        reason=row.reason,
        at=row.at,
        revision=row.revision,
        failure=to_failure(row),
        verdict=row.verdict,
    )
