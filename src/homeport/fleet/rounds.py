"""Work that is repeated for as long as a role lives."""

from collections.abc import Awaitable, Callable

import anyio
import structlog

from homeport.errors import PermanentError, TransientError

log = structlog.get_logger(__name__)


async def every(
    name: str, seconds: float, work: Callable[[], Awaitable[None]], *, limit_seconds: float = 60.0
) -> None:
    """A failure that is told to a person costs one round; anything else ends the role, for a loop that died in
    silence is worse than a process that its supervisor restarts."""
    while True:
        try:
            with anyio.fail_after(limit_seconds):
                await work()
        except (TransientError, PermanentError, TimeoutError) as error:
            log.warning("round lost", loop=name, why=repr(error))
        await anyio.sleep(seconds)
