"""Measurements as packed windows, and the heartbeat intervals of nodes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, select

from homeport.adapters.store import schema
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import records
from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryKey, TelemetryRow
from homeport.vocabulary import Liveness, NodeId, SiteName

_ROWS = schema.telemetry.c
_BEATS = schema.heartbeats.c


async def put_rows(connection: SqlConnection, rows: Sequence[TelemetryRow]) -> None:
    if rows:
        values = [
            {
                "site": row.site,
                "node_id": row.node_id,
                "resolution_seconds": row.resolution_seconds,
                "start": row.start,
                "content": row.content,
            }
            for row in rows
        ]
        await connection.run(insert_or_update(connection, schema.telemetry), values)


async def find_rows(
    connection: SqlConnection,
    site: SiteName,
    node_id: NodeId,
    resolution_seconds: int,
    *,
    start: datetime,
    end: datetime,
) -> Sequence[TelemetryRow]:
    query = (
        select(schema.telemetry)
        .where(_ROWS.site == site, _ROWS.node_id == node_id, _ROWS.resolution_seconds == resolution_seconds)
        .where(_ROWS.start >= start, _ROWS.start < end)
        .order_by(_ROWS.start)
    )
    return await records(connection, query, _window, schema.telemetry)


async def find_keys(
    connection: SqlConnection, site: SiteName, resolution_seconds: int, *, start: datetime
) -> Sequence[TelemetryKey]:
    query = select(_ROWS.node_id, _ROWS.start).where(
        _ROWS.site == site, _ROWS.resolution_seconds == resolution_seconds, _ROWS.start >= start
    )
    return await records(connection, query, lambda row: TelemetryKey(row.node_id, row.start), schema.telemetry)


async def trim_rows(
    connection: SqlConnection, resolution_seconds: int, *, before: datetime, bytes_max: int
) -> tuple[int, int]:
    """Deletes what is too old, then the oldest while all take more than `bytes_max`; returns rows and bytes left."""
    own = _ROWS.resolution_seconds == resolution_seconds
    await connection.run(delete(schema.telemetry).where(own, _ROWS.start < before))
    while True:
        sums = select(func.count(), func.coalesce(func.sum(func.length(_ROWS.content)), 0), func.min(_ROWS.start))
        count, size, oldest = tuple((await connection.rows(sums.where(own)))[0])
        if size <= bytes_max or not isinstance(oldest, datetime):
            return int(count), int(size)
        await connection.run(delete(schema.telemetry).where(own, _ROWS.start <= oldest))


async def put_intervals(connection: SqlConnection, site: SiteName, intervals: Sequence[Interval]) -> None:
    rows = [
        {
            "site": site,
            "node_id": each.node_id,
            "start": each.start,
            "state": each.state.value,
            "finish": each.end,
        }
        for each in intervals
    ]
    for some in pieces(rows):
        await connection.run(insert_or_update(connection, schema.heartbeats), list(some))


async def find_intervals(
    connection: SqlConnection, site: SiteName, node_id: NodeId, *, start: datetime, end: datetime, limit: int
) -> Sequence[Interval]:
    """The newest `limit` that touch the range."""
    query = (
        select(schema.heartbeats)
        .where(_BEATS.site == site, _BEATS.node_id == node_id, _BEATS.start < end)
        .where(_BEATS.finish.is_(None) | (_BEATS.finish > start))
        .order_by(_BEATS.start.desc())
        .limit(limit)
    )
    return await records(connection, query, _interval, schema.heartbeats)


async def find_open_intervals(connection: SqlConnection, site: SiteName) -> Sequence[Interval]:
    query = select(schema.heartbeats).where(_BEATS.site == site, _BEATS.finish.is_(None))
    return await records(connection, query, _interval, schema.heartbeats)


async def trim_intervals(connection: SqlConnection, *, before: datetime) -> None:
    await connection.run(delete(schema.heartbeats).where(_BEATS.finish < before))


def _window(row: Row[Any]) -> TelemetryRow:
    return TelemetryRow(**row._mapping)


def _interval(row: Row[Any]) -> Interval:
    return Interval(NodeId(row.node_id), row.start, Liveness(row.state), row.finish)
