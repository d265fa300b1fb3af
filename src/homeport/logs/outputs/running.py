"""Sends lines on to the systems where people keep their logs, from where each of them has got to.

A receiver that is away costs nothing here: its lines wait in the log file, and those that have to be removed before
it is back become gaps. What a receiver refuses for good is dropped, and said in the log.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import anyio

from homeport.core.logs.line import StoredLine
from homeport.core.logs.settings import LogSettings
from homeport.errors import PermanentError, TransientError
from homeport.fleet.shared.backoff import Backoff
from homeport.log import get_log
from homeport.logs import outputs as receivers
from homeport.ports import LogStore

log = get_log("homeport.logs")

LINES_MAX: Final = 1_000
PAUSE_SECONDS: Final = 0.5
REFUSALS_MAX: Final = 50
"""Of one batch. A receiver that refuses everything must not be sent every line alone."""


class LogOutput(Protocol):
    name: str
    """Of this receiver: a changed address starts again."""

    async def send(self, lines: Sequence[StoredLine]) -> None:
        """Raises TransientError to try again, PermanentError for lines that are never accepted."""
        ...


async def run_outputs(store: LogStore, settings: LogSettings) -> None:
    """Until cancelled; returns at once where there is nowhere to send to."""
    if settings.otlp_url is None and settings.loki_url is None:
        return
    async with receivers.open_outputs(settings) as outputs, anyio.create_task_group() as tasks:
        for output in outputs:
            tasks.start_soon(run_output, store, output)


async def run_output(store: LogStore, output: LogOutput) -> None:
    backoff = Backoff()
    consumer, cursor = f"output/{output.name}", None
    is_told = False
    while True:
        try:
            if cursor is None:
                cursor = await _begin(store, consumer)
            await store.wait(cursor)
            lines = await store.after(cursor, LINES_MAX)
            if lines:
                await _send(output, lines)
                cursor = lines[-1].id
                await store.advance(consumer, cursor)
            backoff.reset()
            is_told = False
        except TransientError as error:
            if not is_told:
                log.warning("log output not reachable, will retry", output=output.name, why=str(error))
            is_told = True
            await anyio.sleep(backoff.next_seconds())
            continue
        if len(lines) < LINES_MAX:
            await anyio.sleep(PAUSE_SECONDS)


async def _begin(store: LogStore, consumer: str) -> int:
    """A receiver that is new here gets what is written from now on."""
    cursor = await store.cursor(consumer)
    if not cursor:
        cursor = (await store.bounds())[1]
        await store.advance(consumer, cursor)
    return cursor


async def _send(output: LogOutput, lines: Sequence[StoredLine]) -> None:
    """One bad line harms itself alone: what is refused for good is sent in halves until that line is found."""
    parts, refusals = [lines], 0
    while parts:
        part = parts.pop()
        try:
            await output.send(part)
        except PermanentError as error:
            refusals += 1
            if len(part) > 1 and refusals <= REFUSALS_MAX:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
                continue
            log.warning("log lines refused by an output", output=output.name, lines=len(part), why=str(error))
