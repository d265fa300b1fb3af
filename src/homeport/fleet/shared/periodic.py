"""Work that is repeated while a role runs."""

from collections.abc import Awaitable, Callable

import anyio

from homeport.errors import PermanentError, TransientError
from homeport.log import get_log
from homeport.ports import Store

log = get_log(__name__)


async def every(
    name: str,
    seconds: float,
    work: Callable[[], Awaitable[None]],
    *,
    limit_seconds: float = 60.0,
    needed: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """A transient or permanent error is logged and costs one round; anything else ends the role, because a loop that
    died silently is worse than a process that its supervisor restarts.

    `needed` returns when there is something to do: until then the process is not woken (ADR 0077).
    """
    while True:
        if needed is not None:
            await needed()
        try:
            with anyio.fail_after(limit_seconds):
                await work()
        except (TransientError, PermanentError, TimeoutError) as error:
            log.warning("loop iteration failed", loop=name, why=repr(error))
        await anyio.sleep(seconds)


class EventOr:
    """For `every`: returns when the store has a new event since the last time, after `seconds` at the latest. What is
    stored without an event, and what another process does unseen, has to wait for that."""

    def __init__(self, store: Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._seen = 0

    async def __call__(self) -> None:
        with anyio.move_on_after(self._seconds):
            self._seen = await self._store.wait_for_event(self._seen)
