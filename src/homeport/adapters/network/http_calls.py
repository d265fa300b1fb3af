"""HTTP requests to addresses that others have chosen: judged after the name is resolved, bounded, without redirects.

The connection is made to the very addresses that were judged: a name cannot resolve to another one in between.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

import anyio

from homeport.errors import InvalidInput, PeerUnavailable, Refused, TooLarge, system_reason
from homeport.lazy_dataclass import dataclass

Judge = Callable[[str, str], str | None]
"""Of a host and one of its addresses: why it may not be called, or None."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def call(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, judge: Judge, bytes_max: int
) -> HttpAnswer:
    """Raises Refused for an address that must not be called, PeerUnavailable, TooLarge and InvalidInput. The caller
    bounds the time."""
    from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector  # noqa: PLC0415 - start-up time
    from yarl import URL  # noqa: PLC0415

    try:
        target = URL(url)
        host = target.host
    except ValueError as error:
        raise InvalidInput(f"{url[:200]!r} is not an address.") from error
    if host is None or target.scheme not in ("http", "https"):
        raise InvalidInput(f"{url[:200]!r} is not an address.")
    _check_literal(host, judge)
    try:
        async with (
            ClientSession(
                connector=TCPConnector(resolver=_JudgedResolver(judge), use_dns_cache=False, limit=1),  # type: ignore[arg-type]
                timeout=ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.request(method, target, headers=headers, data=body, allow_redirects=False) as answer,
        ):
            content = bytearray()
            async for chunk in answer.content.iter_chunked(65_536):
                content += chunk
                if len(content) > bytes_max:
                    raise TooLarge(f"The answer of {host} is larger than {bytes_max} bytes.")
            return HttpAnswer(
                answer.status, {name.lower(): value for name, value in answer.headers.items()}, bytes(content)
            )
    except (ClientError, TimeoutError, OSError, RuntimeError, ValueError) as error:  # as in `lost_connection`
        cause = error.__cause__ or error.__context__
        if isinstance(cause, _NotAllowed) or isinstance(error, _NotAllowed):
            raise Refused(str(cause if isinstance(cause, _NotAllowed) else error)) from error
        raise PeerUnavailable(f"{host} cannot be reached: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """aiohttp adds how it had wanted to connect to what the system says."""
    found: Any = getattr(error, "os_error", None)
    is_of_the_system = isinstance(found, OSError) and not isinstance(found, ssl.SSLError)
    return (system_reason(found) if is_of_the_system else str(error))[:300] or type(error).__name__


class _NotAllowed(OSError):
    """The name has an address that must not be called."""


class _JudgedResolver:
    """An `aiohttp.abc.AbstractResolver`."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[dict[str, Any]]:
        found: list[Any] = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for _, _, _, _, address in found:
            why = self._judge(host, str(address[0]))
            if why is not None:
                raise _NotAllowed(why)
        return [
            {
                "hostname": host,
                "host": str(address[0]),
                "port": int(address[1]),
                "family": kind,
                "proto": proto,
                "flags": socket.AI_NUMERICHOST,
            }
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _check_literal(host: str, judge: Judge) -> None:
    """An address needs no resolver."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return
    why = judge(host, host)
    if why is not None:
        raise Refused(why)
