"""Stores what other roles send, and a role's own lines: everything that waits goes into one commit."""

from collections.abc import Callable
from typing import Final

import anyio

from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import LogLine, Origin
from homeport.core.logs.settings import LogSettings
from homeport.core.logs.text import clean
from homeport.errors import TransientError
from homeport.fleet.shared.retention import retention_now
from homeport.log import get_log
from homeport.ports import Clock, LogStore, Store

log = get_log("homeport.logs")

ARRIVALS_MAX: Final = 2_000
LINES_PER_COMMIT_MAX: Final = 20_000
OWN_MAX: Final = 10_000
PAUSE_SECONDS: Final = 0.05
"""After a commit of few lines, so that more come together for the next."""
FEW_LINES: Final = 500
RETRY_SECONDS: Final = 2.0
TRIM_SECONDS: Final = 30.0

Done = Callable[[int | None], None]
"""Called with the last number that is durable; None where it could not be stored."""


class Storing:
    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._waiting: list[tuple[LogArrival, Done]] = []
        self._own: list[tuple[Origin, LogLine]] = []
        self._own_dropped = 0
        self._woken = anyio.Event()

    def put(self, arrival: LogArrival, done: Done) -> None:
        """Never blocks. What does not fit is not taken, and its sender sends it again."""
        if len(self._waiting) >= ARRIVALS_MAX:
            done(None)
            return
        self._waiting.append((arrival, done))
        self._woken.set()

    async def store(self, arrival: LogArrival) -> int:
        """Raises TransientError where it could not be stored."""
        stored, answers = anyio.Event(), list[int | None]()

        def done(last: int | None) -> None:
            answers.append(last)
            stored.set()

        self.put(arrival, done)
        await stored.wait()
        last = answers[0]
        if last is None:
            raise TransientError("Log lines cannot be stored now.")
        return last

    def put_own(self, origin: Origin, line: LogLine) -> None:
        """A line of this role, or of work that it does by itself."""
        if len(self._own) >= OWN_MAX:
            self._own_dropped += 1
            return
        self._own.append((origin, clean(line)))
        self._woken.set()

    async def run(self) -> None:
        is_told = False
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            taken, own = self._taken()
            try:
                if own:
                    await self._store.append(own)
                lasts = await self._store.take([arrival for arrival, _ in taken]) if taken else ()
                is_told = False
            except TransientError as error:
                if not is_told:
                    log.warning("log write failed", error=str(error))
                is_told = True
                for _, done in taken:
                    done(None)
                await anyio.sleep(RETRY_SECONDS)
                continue
            for (_, done), last in zip(taken, lasts, strict=True):
                done(last)
            if sum(_lines_of(arrival) for arrival, _ in taken) < FEW_LINES:
                await anyio.sleep(PAUSE_SECONDS)

    async def trim(self, settings: LogSettings, store: Store, clock: Clock) -> None:
        while True:
            try:
                behind = clock.now() - await retention_now(store, clock)
                days = settings.days + behind.total_seconds() / 86_400
                await self._store.trim(days=days, bytes_max=settings.bytes_max)
            except TransientError as error:
                log.warning("old log lines not removed", error=str(error))
            await anyio.sleep(TRIM_SECONDS)

    def _taken(self) -> tuple[list[tuple[LogArrival, Done]], list[tuple[Origin, LogLine]]]:
        own, self._own = self._own, []
        count, lines = 0, 0
        for arrival, _ in self._waiting:
            lines += _lines_of(arrival)
            if count and lines > LINES_PER_COMMIT_MAX:
                break
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if self._waiting:
            self._woken.set()
        return taken, own


def _lines_of(arrival: LogArrival) -> int:
    return sum(len(batch.lines) for batch in arrival.batches)
