"""Joins two streams: bytes of each go to the other, and each end of input is passed on."""

import anyio

from homeport.errors import HomeportError
from homeport.ports import TunnelStream


async def relay(one: TunnelStream, other: TunnelStream) -> None:
    """Returns when both have ended. Raises what the first of them raises; the caller closes both."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_copy, one, other)
            tasks.start_soon(_copy, other, one)
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of ours where there is one; the streams of a broken connection all say the same."""
    ours = group.subgroup(HomeportError)
    found: BaseException = ours or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


async def _copy(source: TunnelStream, target: TunnelStream) -> None:
    while data := await source.read():
        await target.write(data)
    await target.end()
