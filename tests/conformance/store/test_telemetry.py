"""Measurements as packed windows, and heartbeat intervals."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryKey, TelemetryRow
from homeport.ports import Store
from homeport.vocabulary import Liveness, NodeId, SiteName

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOME, ONE = SiteName("home"), NodeId("one")


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def a_row(minutes: int, content: bytes = b"\x00window", *, node: str = "one", resolution: int = 60) -> TelemetryRow:
    return TelemetryRow(HOME, NodeId(node), resolution, at(minutes), content)


async def rows(store: Store, *, start: float = -1000, end: float = 1000) -> Sequence[TelemetryRow]:
    async with store.read() as reader:
        return await reader.telemetry(HOME, ONE, 60, start=at(start), end=at(end))


async def test_windows_are_found_by_node_resolution_and_time_and_replaced_by_key(store: Store) -> None:
    others = [a_row(0, node="two"), a_row(0, resolution=0)]
    await store.write(lambda tx: tx.put_telemetry([a_row(15), a_row(0), *others]))
    await store.write(lambda tx: tx.put_telemetry([a_row(15, b"better")]))
    assert await rows(store) == [a_row(0), a_row(15, b"better")]
    assert await rows(store, start=15) == [a_row(15, b"better")]
    assert await rows(store, end=15) == [a_row(0)]
    async with store.read() as reader:
        keys = await reader.telemetry_keys(HOME, 60, start=at(0))
        assert set(keys) == {TelemetryKey(ONE, at(0)), TelemetryKey(ONE, at(15)), TelemetryKey(NodeId("two"), at(0))}
        assert await reader.telemetry_keys(SiteName("north"), 60, start=at(0)) == []


async def test_old_windows_go_and_the_oldest_while_there_are_too_many_bytes(store: Store) -> None:
    await store.write(lambda tx: tx.put_telemetry([a_row(minutes, b"x" * 100) for minutes in (0, 15, 30, 45)]))
    await store.write(lambda tx: tx.put_telemetry([a_row(0, b"x" * 100, resolution=0)]))
    assert await store.write(lambda tx: tx.trim_telemetry(60, before=at(10), bytes_max=1000)) == (3, 300)
    assert await store.write(lambda tx: tx.trim_telemetry(60, before=at(10), bytes_max=250)) == (2, 200)
    assert [row.start for row in await rows(store)] == [at(30), at(45)]
    assert await store.write(lambda tx: tx.trim_telemetry(0, before=at(0), bytes_max=100)) == (1, 100)


async def test_heartbeat_intervals_are_kept_until_they_are_old(store: Store) -> None:
    first, last = Interval(ONE, at(0), Liveness.LIVE), Interval(ONE, at(20), Liveness.STALE)
    await store.write(lambda tx: tx.put_heartbeats(HOME, [first]))
    ended = Interval(ONE, at(0), Liveness.LIVE, at(20))
    await store.write(lambda tx: tx.put_heartbeats(HOME, [ended, last]))
    async with store.read() as reader:
        assert await reader.heartbeats(HOME, ONE, start=at(-10), end=at(30), limit=10) == [last, ended]
        assert await reader.heartbeats(HOME, ONE, start=at(20), end=at(30), limit=10) == [last]
        assert await reader.heartbeats(HOME, ONE, start=at(-10), end=at(30), limit=1) == [last]
        assert await reader.heartbeats(SiteName("north"), ONE, start=at(-10), end=at(30), limit=1) == []
        assert await reader.open_heartbeats(HOME) == [last]
    await store.write(lambda tx: tx.trim_heartbeats(before=at(21)))
    async with store.read() as reader:
        assert await reader.heartbeats(HOME, ONE, start=at(-10), end=at(30), limit=10) == [last]
