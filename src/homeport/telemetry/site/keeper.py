"""Keeps what the nodes of a site measure.

Points collect in open windows in memory; a window that is over becomes one row. Windows of the coarser resolutions
are made from the rows of the finer one, so a crash costs the last minutes of points, and nothing else.
"""

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from homeport.core.telemetry.ranges import TimeRange
from homeport.core.telemetry.records import TelemetryRow
from homeport.core.telemetry.windows import (
    FULL,
    MINUTE,
    RESOLUTIONS,
    TEN_MINUTES,
    OpenWindow,
    Resolution,
    TelemetryWindow,
    pack,
    reduce,
)
from homeport.errors import TransientError
from homeport.fleet.shared.retention import retention_now
from homeport.fleet.site.platform import SitePlatform
from homeport.log import get_log
from homeport.ports import Logs, Telemetry, Transaction
from homeport.telemetry.shared.latest import Latest, values_of
from homeport.telemetry.shared.series import Question, answer, find_contents, readable
from homeport.vocabulary import NodeId

log = get_log("homeport.telemetry")

LATE_SECONDS: Final = 60.0
"""How long a window waits for points of a node that was disconnected; older ones are a gap."""
CLOCK_SECONDS_MAX: Final = 600.0
"""A node whose clock differs by more has its points placed by the site's clock."""
BYTES_MAX: Final = 1_000_000_000
"""Of each resolution. A node with ten containers takes some 400 kB in all."""
UNSENT_MAX: Final = 20_000
BATCH: Final = 200
WAITING_SECONDS_MAX: Final = 3600.0
"""How old a window may get while the database takes nothing, before it is dropped."""
STALE_SECONDS: Final = 900.0
"""A node that has said nothing for so long has no newest measurement any more."""


class TelemetryKeeper:
    def __init__(self, site: SitePlatform) -> None:
        self._site = site
        self._open: dict[tuple[NodeId, int], OpenWindow] = {}
        """By node and the beginning of the aligned window; a window itself begins with its first point, so that two
        runs of the site never write the same row."""
        self._latest: dict[NodeId, Latest] = {}
        self.late = 0
        """Messages that came after their window was over."""
        self.unsent: deque[tuple[NodeId, int, datetime]] = deque(maxlen=UNSENT_MAX)
        """Windows that central has not got yet: node, resolution, start."""

    def on_stream(self, node_id: NodeId, message: Logs | Telemetry) -> None:
        if isinstance(message, Telemetry):
            self.take(node_id, message)

    def take(self, node_id: NodeId, message: Telemetry) -> None:
        now, at = self._site.clock.now(), message.at
        if abs((now - at).total_seconds()) > CLOCK_SECONDS_MAX:
            at = now
        values = values_of(message.samples)
        at_ms = int(at.timestamp() * 1000)
        slot = FULL.window_start_ms(at_ms)
        key = node_id, slot
        window = self._open.get(key)
        if window is None:
            if _is_over(slot, now):
                self.late += 1
                return
            window = self._open[key] = OpenWindow(at_ms)
        if at_ms < window.start_ms:
            self.late += 1
            return
        window.add(at_ms, values)
        before = self._latest.get(node_id)
        if before is None or before.at <= at:
            self._latest[node_id] = Latest(self._site.site, node_id, at, values)

    def latest(self) -> list[Latest]:
        """Of nodes that are still registered and have sent a heartbeat lately."""
        since, nodes = self._site.clock.now() - timedelta(seconds=STALE_SECONDS), self._site.nodes()
        self._latest = {name: each for name, each in self._latest.items() if each.at >= since and name in nodes}
        return [self._latest[name] for name in sorted(self._latest)]

    async def series(self, question: Question) -> dict[str, Any]:
        wanted = question.range(self._site.clock.now())
        contents: dict[NodeId, list[bytes]] = {}
        async with self._site.store.read() as reader:
            for node_id in question.nodes:
                contents[node_id] = await find_contents(reader, self._site.site, node_id, wanted)
        open_windows = {
            node_id: [window.closed() for (name, _), window in self._open.items() if name == node_id]
            for node_id in question.nodes
        }
        return await self._site.in_thread(partial(_answer, contents, open_windows, question, wanted))

    async def flush(self, *, everything: bool = False) -> None:
        """Writes the windows that are over."""
        now = self._site.clock.now()
        over = [key for key in self._open if everything or _is_over(key[1], now)]
        for place in range(0, len(over), BATCH):
            taken = {key: self._open.pop(key) for key in over[place : place + BATCH]}
            try:
                rows = await self._site.in_thread(partial(self._rows, taken))
                await self._site.store.write(partial(_put, rows))
            except TransientError:
                oldest = _ms(now) - int(1000 * WAITING_SECONDS_MAX)
                self._open |= {key: window for key, window in taken.items() if key[1] >= oldest}
                raise

    def _rows(self, windows: Mapping[tuple[NodeId, int], OpenWindow]) -> list[TelemetryRow]:
        return [
            TelemetryRow(self._site.site, node_id, FULL.seconds, _moment(each.start_ms), pack(each.closed()))
            for (node_id, _), each in windows.items()
        ]

    async def roll_up(self) -> None:
        await self._reduce(FULL, MINUTE)
        await self._reduce(MINUTE, TEN_MINUTES)

    async def _reduce(self, finer: Resolution, coarser: Resolution) -> None:
        """Makes the coarser windows that are over and do not exist yet."""
        now, site = self._site.clock.now(), self._site.site
        since = now - timedelta(seconds=finer.keep_seconds)
        async with self._site.store.read() as reader:
            have = {
                (key.node_id, _ms(key.start))
                for key in await reader.telemetry_keys(site, coarser.seconds, start=since - timedelta(hours=3))
            }
            found = await reader.telemetry_keys(site, finer.seconds, start=since)
        due = {(key.node_id, coarser.window_start_ms(_ms(key.start))) for key in found} - have
        # The windows below must be over and written first.
        grace_ms = int(1000 * (LATE_SECONDS + FULL.window_seconds))
        end_ms = _ms(now) - grace_ms - coarser.window_seconds * 1000
        for node_id, start_ms in sorted(each for each in due if each[1] <= end_ms and each[1] >= _ms(since)):
            await self._reduce_one(node_id, start_ms, finer, coarser)

    async def _reduce_one(self, node_id: NodeId, start_ms: int, finer: Resolution, coarser: Resolution) -> None:
        site, start = self._site.site, _moment(start_ms)
        end = start + timedelta(seconds=coarser.window_seconds)
        async with self._site.store.read() as reader:
            rows = await reader.telemetry(site, node_id, finer.seconds, start=start, end=end)
        contents = [row.content for row in rows]
        packed = await self._site.in_thread(partial(_reduced, contents, start_ms, coarser))
        row = TelemetryRow(site, node_id, coarser.seconds, start, packed)
        await self._site.store.write(lambda tx: tx.put_telemetry([row]))
        self.unsent.append((node_id, coarser.seconds, start))

    async def trim(self) -> None:
        now = await retention_now(self._site.store, self._site.clock)
        for each in RESOLUTIONS:
            before = now - timedelta(seconds=each.keep_seconds)
            await self._site.store.write(partial(_trim, each.seconds, before))


async def _put(rows: list[TelemetryRow], tx: Transaction) -> None:
    await tx.put_telemetry(rows)


async def _trim(seconds: int, before: datetime, tx: Transaction) -> None:
    await tx.trim_telemetry(seconds, before=before, bytes_max=BYTES_MAX)


def _answer(
    contents: Mapping[NodeId, list[bytes]],
    open_windows: Mapping[NodeId, list[TelemetryWindow]],
    question: Question,
    wanted: TimeRange,
) -> dict[str, Any]:
    windows = {node_id: [*readable(each), *open_windows[node_id]] for node_id, each in contents.items()}
    return answer(windows, question, wanted)


def _reduced(contents: list[bytes], start_ms: int, coarser: Resolution) -> bytes:
    end_ms = start_ms + coarser.window_seconds * 1000
    return pack(reduce(readable(contents), start_ms=start_ms, end_ms=end_ms, step_ms=coarser.seconds * 1000))


def _is_over(slot_ms: int, now: datetime) -> bool:
    return _ms(now) >= slot_ms + int(1000 * (FULL.window_seconds + LATE_SECONDS))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
