"""Connections on behalf of callers who may reach the internet only: judged after the name is resolved.

The connection is made to an address that was judged: a name cannot resolve to another one in between. The limit
belongs to the context, so that redirects, token servers of registries and whatever else a fetch leads to are judged.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio

from homeport.core.values.addresses import is_public_address
from homeport.errors import Refused

_PUBLIC_ONLY: ContextVar[bool] = ContextVar("public_only", default=False)


@contextmanager
def public_addresses_only(*, is_limited: bool = True) -> Iterator[None]:
    token = _PUBLIC_ONLY.set(is_limited)
    try:
        yield
    finally:
        _PUBLIC_ONLY.reset(token)


async def reachable(host: str, port: int) -> str:
    """The host itself; where only public addresses may be reached, an address of it, which then is public as all the
    others are. Raises Refused, and OSError for an unknown name."""
    if not _PUBLIC_ONLY.get():
        return host
    found: list[Any] = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(address[0]) for *_, address in found]
    for address in addresses:
        if not is_public_address(address):
            raise Refused(
                f"{host} is at {address}, which is not a public address.",
                hint="Only an administrator may have central connect to it; ask one.",
            )
    return addresses[0]


async def judged_address(host: str, port: int) -> str | None:
    """What to connect to instead of the name; None where every address may be reached. Raises as `reachable`."""
    return await reachable(host, port) if _PUBLIC_ONLY.get() else None
