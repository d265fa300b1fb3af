"""The node's buffer of log lines: in memory for a moment, then on disk until the site has stored them.

Everything on the node that writes lines puts them here. A site that is away costs disk space up to a bound; beyond it
the oldest lines become gaps that say how many they were. Lines are sent in the order of their numbers, a few batches
ahead of the site's acknowledgement, and again from there on a new stream.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

import anyio

from homeport.adapters.logs.sqlite import LogFile
from homeport.core.logs.gaps import gap
from homeport.core.logs.line import LogLine, Origin
from homeport.core.logs.rates import LogRate, RateRules, admit, begin, tell
from homeport.core.logs.text import clean, is_of_job
from homeport.errors import TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, InThread, Logs, LogsStored

log = get_log("homeport.logs")

WAITING_MAX: Final = 20_000
"""Lines in memory while the disk is busy; more are dropped, and counted."""
BATCH_LINES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 512 * 1024
IN_FLIGHT_MAX: Final = 16
"""Batches sent ahead of the site's acknowledgement."""
FLUSH_SECONDS: Final = 0.1
"""Lines of this time are written with one sync of the disk."""
RESEND_SECONDS: Final = 10.0
"""How long a connected site may not acknowledge anything before the lines are sent again."""
RETRY_SECONDS: Final = 2.0
TRIM_SECONDS: Final = 5.0
SOURCES_MAX: Final = 5_000
NEVER_DAYS: Final = 36_500.0
SITE: Final = "site"


@dataclass(slots=True)
class _Sending:
    """What was sent on the current stream."""

    last: int
    """The number up to which everything was sent, or is gone."""
    previous: int
    """What the next batch says to follow: less than `last` where the site has lost lines that are gone here."""
    in_flight: deque[int] = field(default_factory=deque)
    """The last number of each batch that was not acknowledged yet."""
    heard_at: float = 0.0


class LogSpool:
    def __init__(
        self,
        file: LogFile,
        clock: Clock,
        send: Callable[[Logs], None],
        *,
        in_thread: InThread,
        rules: RateRules,
        bytes_max: int,
    ) -> None:
        self._file = file
        self._clock = clock
        self._send = send
        self._in_thread = in_thread
        self._rules = rules
        self._bytes_max = bytes_max
        self._waiting: list[LogLine] = []
        self._positions: dict[str, str] = {}
        self._lost: dict[str, int] = {}
        """Lines dropped for lack of memory, by source."""
        self._rates: dict[str, LogRate] = {}
        self._acknowledged = file.cursor(SITE)
        self._newest = file.bounds()[1]
        self._sending: _Sending | None = None
        self._written, self._moved, self._freed = anyio.Event(), anyio.Event(), anyio.Event()
        self.dropped = 0
        """Lines that were dropped here since the start, for lack of room or because a source writes too many."""

    def put_logs(self, logs: Logs, positions: Mapping[str, str] | None = None) -> None:
        """For whatever runs on the node; never blocks. What a job printed stays as it is: its site puts the output
        together of these lines, byte by byte, and reads them for the log."""
        by_source: dict[str, list[LogLine]] = {}
        for line in logs.lines:
            by_source.setdefault(line.source, []).append(line if is_of_job(line) else clean(line))
        for lines in by_source.values():
            self.put(lines, positions)

    def put(self, lines: Sequence[LogLine], positions: Mapping[str, str] | None = None) -> None:
        """Lines of one source. `positions` are where the output of containers goes on after them."""
        self._positions.update(positions or {})
        kept = self._admitted(list(lines))
        room = WAITING_MAX - len(self._waiting)
        if len(kept) > room:
            source = kept[0].source
            self._lost[source] = self._lost.get(source, 0) + len(kept) - room
            self.dropped += len(kept) - room
            kept = kept[:room]
        self._waiting += kept
        if self._waiting or self._positions:
            self._written.set()

    async def room(self) -> None:
        """Waits until there is room: for those who can read their lines later, too."""
        while len(self._waiting) > WAITING_MAX // 2:
            await self._freed.wait()

    def positions(self) -> dict[str, str]:
        """Where the output of each container goes on."""
        return {**self._file.positions(), **self._positions}

    async def position(self, of: str) -> str:
        known = self._positions.get(of)
        return await self._in_thread(self._file.position, of) if known is None else known

    async def forget_positions(self, of: Sequence[str]) -> None:
        for each in of:
            self._positions.pop(each, None)
        await self._in_thread(self._file.forget_positions, of)

    # --- the link ----------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """A new stream to a site that stores logs."""
        self._sending = _Sending(self._acknowledged, self._acknowledged, heard_at=self._clock.monotonic())
        self._moved.set()

    def closed(self) -> None:
        self._sending = None

    def stored(self, message: LogsStored) -> None:
        """The site's acknowledgement. One that is below what was sent means that something was lost on the way."""
        sending = self._sending
        if message.buffer != self._file.buffer or sending is None or message.sequence > self._newest:
            return
        sending.heard_at = self._clock.monotonic()
        while sending.in_flight and sending.in_flight[0] <= message.sequence:
            sending.in_flight.popleft()
        if message.sequence < self._acknowledged or (message.sequence == self._acknowledged and sending.in_flight):
            # The site lacks a batch: from there again. What the node has forgotten the site had stored once.
            self._sending = _Sending(self._acknowledged, message.sequence, heard_at=sending.heard_at)
        self._acknowledged = max(self._acknowledged, message.sequence)
        self._moved.set()

    # --- loops -------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Makes lines durable, some ten times a second. A full disk costs lines, never the node."""
        is_logged, trimmed_at = False, 0.0
        while True:
            await self._written.wait()
            self._written = anyio.Event()
            lines, positions = self._taken()
            try:
                self._newest = await self._in_thread(self._append, lines, positions)
                is_logged = False
            except TransientError as error:
                if not is_logged:
                    log.warning("log write failed", error=str(error))
                is_logged = True
                self._put_back(lines, positions)
                await anyio.sleep(RETRY_SECONDS)
                continue
            self._freed.set()
            self._freed = anyio.Event()
            self._moved.set()
            if self._clock.monotonic() - trimmed_at >= TRIM_SECONDS:
                trimmed_at = self._clock.monotonic()
                await self._quietly(self._trim)
            await anyio.sleep(FLUSH_SECONDS)

    async def send(self) -> None:
        """Sends what the site has not got, as far ahead as it may, and forgets what it has stored."""
        forgotten = self._acknowledged
        while True:
            is_silent = True
            is_waiting = self._sending is not None and bool(self._sending.in_flight)
            with anyio.move_on_after(RESEND_SECONDS if is_waiting else None):
                await self._moved.wait()
                is_silent = False
            self._moved = anyio.Event()
            if is_silent:
                self._send_again_if_silent()
            await self._send_batches()
            if self._acknowledged > forgotten:
                forgotten = self._acknowledged
                await self._quietly(self._forget, forgotten)

    # --- inside ------------------------------------------------------------------------------------------------

    def _admitted(self, lines: list[LogLine]) -> list[LogLine]:
        if not lines:
            return lines
        source, now = lines[0].source, self._clock.monotonic()
        rate, kept = admit(self._rates.get(source) or begin(now, self._rules), lines, now, self._rules)
        if len(self._rates) >= SOURCES_MAX and source not in self._rates:
            self._rates.clear()
        self._rates[source] = rate
        self.dropped += max(0, len(lines) - len(kept))
        if rate.dropped:
            self._written.set()
        return kept

    def _taken(self) -> tuple[list[LogLine], dict[str, str]]:
        """What is to be written, with a line for what was dropped."""
        lines, self._waiting = self._waiting, []
        positions, self._positions = self._positions, {}
        now = self._clock.now()
        why = "they came faster than this node could write them to its disk"
        lines += [gap(source, now, count, why) for source, count in self._lost.items()]
        self._lost.clear()
        lines += self._notices()
        return lines, positions

    def _notices(self) -> list[LogLine]:
        """What a source that is silent again has lost by writing too much."""
        now, monotonic, notices = self._clock.now(), self._clock.monotonic(), []
        for source, rate in self._rates.items():
            if rate.dropped and monotonic - rate.noticed_at >= 1.0:
                self._rates[source], line = tell(rate, source, now, monotonic, self._rules)
                notices.append(line)
        if any(rate.dropped for rate in self._rates.values()):
            self._written.set()
        return notices

    def _append(self, lines: Sequence[LogLine], positions: Mapping[str, str]) -> int:
        if lines or positions:
            origins = {source: Origin("", "", source) for source in {line.source for line in lines}}
            self._file.append(((origins[line.source], line) for line in lines), positions)
        return self._file.bounds()[1]

    def _put_back(self, lines: list[LogLine], positions: Mapping[str, str]) -> None:
        """What arrived meanwhile is later, and is dropped first."""
        newer, self._waiting = self._waiting, lines[:WAITING_MAX]
        self._positions = {**positions, **self._positions}
        for line in [*lines[WAITING_MAX:], *newer[WAITING_MAX - len(self._waiting) :]]:
            self._lost[line.source] = self._lost.get(line.source, 0) + 1
        self._waiting += newer[: WAITING_MAX - len(self._waiting)]
        self._written.set()

    def _send_again_if_silent(self) -> None:
        sending = self._sending
        if sending is None or not sending.in_flight:
            return
        if self._clock.monotonic() - sending.heard_at >= RESEND_SECONDS:
            self._sending = _Sending(self._acknowledged, self._acknowledged, heard_at=self._clock.monotonic())

    async def _send_batches(self) -> None:
        while (sending := self._sending) is not None:
            if len(sending.in_flight) >= IN_FLIGHT_MAX or sending.last >= self._newest:
                return
            try:
                found = await self._in_thread(self._file.after, sending.last, BATCH_LINES_MAX)
            except TransientError as error:
                log.warning("log read failed", error=str(error))
                return
            if self._sending is not sending or not found:
                return
            lines = _bounded([each.line for each in found])
            self._send(Logs(tuple(lines), buffer=self._file.buffer, previous=sending.previous))
            sending.last = sending.previous = lines[-1].sequence
            sending.in_flight.append(sending.last)

    async def _quietly(self, work: Callable[..., object], *arguments: object) -> None:
        """Housekeeping that the next round repeats."""
        try:
            await self._in_thread(work, *arguments)
        except TransientError as error:
            log.warning("log write failed", error=str(error))

    def _forget(self, until: int) -> None:
        self._file.forget(until)
        self._file.advance(SITE, until)

    def _trim(self) -> None:
        while self._file.trim(days=NEVER_DAYS, bytes_max=self._bytes_max):
            pass


def _bounded(lines: Sequence[LogLine]) -> list[LogLine]:
    """As many as a message may have."""
    kept: list[LogLine] = []
    size = 0
    for line in lines:
        size += len(line.text) + 100
        if line.fields:
            size += sum(len(name) + len(value) for name, value in line.fields.items())
        if kept and size > BATCH_BYTES_MAX:
            break
        kept.append(line)
    return kept
