"""Sends a site's log lines to central, in the order of its log file, from the last one that central has stored.

While central is away they wait in the file; those that have to be removed meanwhile become gaps.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from homeport.core.logs.line import StoredLine
from homeport.errors import InvalidInput, PeerIncompatible, PeerUnavailable, Refused, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.log import get_log
from homeport.ports import CentralLink, InThread, LogStore
from homeport.vocabulary import SiteName
from homeport.wire.logs import decode_stored, encode_batch

log = get_log("homeport.logs")

TOPIC: Final = "logs"
CENTRAL: Final = "central"
"""The name of this consumer of the log file."""
LINES_MAX: Final = 10_000
"""In one request, and of each there is one at a time: a line waits for two commits, here and at central."""
BYTES_MAX: Final = 2_000_000
PAUSE_SECONDS: Final = 0.1
OLD_CENTRAL_SECONDS: Final = 60.0
NOTE_SECONDS: Final = 2.0
"""How often it is noted how far central is; after a crash, central recognises what is sent again."""


class Forwarder:
    def __init__(
        self, store: LogStore, central: CentralLink, site: SiteName, buffer: str, in_thread: InThread
    ) -> None:
        self._store = store
        self._central = central
        self._site = site
        self._buffer = buffer
        self._in_thread = in_thread
        self._cursor = self._previous = self._noted = 0
        self._limit = LINES_MAX

    async def run(self) -> None:
        backoff = Backoff()
        self._cursor = self._previous = self._noted = await self._store.cursor(CENTRAL)
        while True:
            try:
                await self._wait()
                is_full = await self._send_once()
                backoff.reset()
                if not is_full:
                    await anyio.sleep(PAUSE_SECONDS)
            except PeerIncompatible as error:
                log.warning("central does not take log lines", why=str(error))
                await anyio.sleep(OLD_CENTRAL_SECONDS)
            except (PeerUnavailable, TransientError) as error:
                log.debug("log lines not sent to central", why=str(error))
                await anyio.sleep(backoff.next_seconds())

    async def _wait(self) -> None:
        """Waits for lines, and notes how far central is when there are none for a while."""
        if self._noted != self._cursor:
            with anyio.move_on_after(NOTE_SECONDS) as waiting:
                await self._store.wait(self._cursor)
            if waiting.cancelled_caught:
                await self._note()
        await self._store.wait(self._cursor)

    async def _note(self) -> None:
        await self._store.advance(CENTRAL, self._cursor)
        self._noted = self._cursor

    async def _send_once(self) -> bool:
        """Sends the next lines; whether there are certainly more."""
        found = await self._store.after(self._cursor, self._limit)
        lines = _bounded(found)
        if not lines:
            return False
        body = await self._in_thread(encode_batch, self._buffer, self._previous, lines)
        try:
            answer = decode_stored(await self._central.call(self._site, TOPIC, body))
        except (Refused, InvalidInput) as error:
            await self._leave_out(lines, str(error))
            return True
        self._limit = LINES_MAX
        # Less than what was sent means that central has lost lines: they are sent again, as far as they are here.
        self._cursor = self._previous = answer
        if self._cursor - self._noted >= 10 * LINES_MAX:
            await self._note()
        return len(lines) < len(found) or len(found) == LINES_MAX

    async def _leave_out(self, lines: Sequence[StoredLine], why: str) -> None:
        """One bad line harms itself alone: halves are tried until it is found."""
        if len(lines) > 1:
            self._limit = len(lines) // 2
            return
        log.warning("log line refused by central", source=lines[0].origin.source, why=why)
        self._cursor, self._limit = lines[0].id, LINES_MAX


def _bounded(lines: Sequence[StoredLine]) -> Sequence[StoredLine]:
    size = 0
    for count, (_, _, line) in enumerate(lines):
        size += len(line.text) + 50
        if line.fields:
            size += sum(map(len, line.fields.values()))
        if size > BYTES_MAX and count:
            return lines[:count]
    return lines
