"""Keeps one tunnel upwards open, as long as the role runs, and replaces it now and then."""

from typing import Final, NoReturn

import anyio

from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import PeerIncompatible, PeerUnavailable
from homeport.fleet.shared.backoff import Backoff
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.log import get_log
from homeport.ports import AnswerStream, DialTunnel, TunnelConnection

log = get_log("homeport.tunnel")

BACKOFF: Final = BackoffPolicy(first_seconds=0.2, max_seconds=10.0)
STEADY_SECONDS: Final = 10.0
"""A tunnel that lived this long was a good one: after it, the backoff starts again."""
AGE_SECONDS_MAX: Final = 3600.0
"""Then it is replaced as soon as it carries nothing, so that a renewed certificate is shown in time."""
IDLE_SECONDS: Final = 5.0


async def keep_tunnel(
    dial: DialTunnel, answer: AnswerStream, *, to: str, kept: OpenTunnels[str] | None = None
) -> NoReturn:
    """It is one of `kept` while it is open."""
    kept = OpenTunnels() if kept is None else kept
    backoff, said = Backoff(BACKOFF.first_seconds, BACKOFF.max_seconds), ""
    while True:
        began = anyio.current_time()
        try:
            async with dial() as connection:
                log.info("tunnel open", to=to)
                said = ""
                forget = kept.attach(to, connection)
                try:
                    await _serve(connection, answer)
                finally:
                    forget()
                log.info("tunnel closed", to=to, why=await connection.closed())
            if anyio.current_time() - began >= STEADY_SECONDS:
                backoff.reset()
            seconds = backoff.next_seconds()
        except PeerUnavailable as error:
            if str(error) != said:
                log.warning("tunnel failed, will retry", to=to, why=str(error))
            said = str(error)
            is_older = isinstance(error, PeerIncompatible)
            seconds = error.retry_after_seconds if is_older else backoff.next_seconds()
        await anyio.sleep(seconds)


async def _serve(connection: TunnelConnection, answer: AnswerStream) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_retire, connection)
        await connection.serve(answer)
        tasks.cancel_scope.cancel()


async def _retire(connection: TunnelConnection) -> None:
    await anyio.sleep(AGE_SECONDS_MAX)
    while connection.streams:  # noqa: ASYNC110 - once an hour, and nothing waits for it
        await anyio.sleep(IDLE_SECONDS)
    connection.close("it is replaced by a newer one")
