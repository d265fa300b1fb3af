"""An HTTP/1.1 client: for container engines, registries, health checks, and enrolment.

One connection per exchange: a local socket costs nothing, and sharing a connection between streams would complicate
reading. Every exchange has a deadline or, for streams, an idle timeout; every body has a size limit. Redirects are
never followed here: only the caller knows where its credentials may be sent. A response that is not HTTP, not JSON or
not a number raises `ExchangeFailed` or counts as missing; it never raises anything else.
"""

import json
import math
import os
import re
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import anyio
import anyio.abc
import h11
from anyio.streams.tls import TLSAttribute, TLSStream

from homeport.adapters.network.reach import reachable
from homeport.adapters.network.unix_stream import UnixStream
from homeport.core.values.addresses import is_loopback
from homeport.lazy_dataclass import dataclass

BODY_MAX: Final = 16 * 1024 * 1024
"""The default size limit of a response read as a whole. A thousand containers are some 2 MB."""
PIECE: Final = 256 * 1024
_TLS_REASON: Final = re.compile(r"\[[A-Z0-9]+: ([A-Z0-9_]+)\]")
_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "PACKET_LENGTH_TOO_LONG"}
)
"""What OpenSSL says of an answer that is no TLS."""


class ExchangeFailed(Exception):
    """The other end did not answer as HTTP, or not in time."""


class BodyTooLarge(ExchangeFailed):
    """The answer is longer than the caller accepts."""


class BodyTorn(ExchangeFailed):
    """The connection broke, or fell silent, while a body was being read."""

    def __init__(self, message: str, *, status: int, received: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.received = received


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Proxy:
    address: TcpAddress
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TlsAddress:
    host: str
    port: int
    context: ssl.SSLContext
    server_name: str = ""
    """The server name (SNI) to request; empty means `host`."""
    check: Callable[[ssl.SSLObject], object] | None = None
    """Called before anything is sent; raises to reject the peer."""
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return str(TcpAddress(self.host, self.port))


@dataclass(frozen=True, slots=True)
class ForwardProxyAddress:
    """A forward proxy for plain HTTP to `target`."""

    proxy: Proxy
    target: TcpAddress

    def __str__(self) -> str:
        return str(self.proxy.address)


Address = UnixAddress | TcpAddress | TlsAddress | ForwardProxyAddress


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; of several with one name, the last."""


class Streaming:
    """A response whose head has arrived and whose body is still being received."""

    def __init__(self, exchange: "_Exchange", head: h11.Response, silence_seconds: float) -> None:
        self.status = head.status_code
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
        self._exchange = exchange
        self._silence_seconds = silence_seconds

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises ExchangeFailed after `silence_seconds` without a byte."""
        while True:
            try:
                with anyio.fail_after(self._silence_seconds):
                    event = await self._exchange.next_event()
            except TimeoutError as error:
                raise ExchangeFailed(f"no data for {self._silence_seconds:g} s") from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    async def read(self, size_max: int = BODY_MAX, *, seconds_max: float = math.inf) -> bytes:
        """Raises BodyTooLarge, or BodyTorn with what has arrived. `seconds_max` guards against a peer that sends a
        byte at a time."""
        content = bytearray()
        deadline = anyio.current_time() + seconds_max
        try:
            async for chunk in self.chunks():
                content += chunk
                if len(content) > size_max or anyio.current_time() > deadline:
                    break
        except ExchangeFailed as error:
            raise BodyTorn(str(error), status=self.status, received=bytes(content)) from error
        if len(content) > size_max:
            raise BodyTooLarge(f"the answer is longer than {size_max} bytes")
        if anyio.current_time() > deadline:
            raise BodyTorn("it was too slow", status=self.status, received=bytes(content))
        return bytes(content)


async def ask(
    address: Address,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    seconds: float = 30.0,
    size_max: int = BODY_MAX,
) -> HttpResponse:
    """One whole exchange within `seconds`. Raises OSError when the connection is refused, ExchangeFailed
    otherwise."""
    try:
        with anyio.fail_after(seconds):
            async with stream(
                address, method, path, query=query, body=body, headers=headers, silence_seconds=seconds
            ) as streaming:
                return HttpResponse(streaming.status, await streaming.read(size_max), streaming.headers)
    except TimeoutError as error:
        raise ExchangeFailed(f"no answer within {seconds:g} s") from error


@asynccontextmanager
async def stream(
    address: Address,
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    silence_seconds: float,
) -> AsyncIterator[Streaming]:
    """Opens an exchange whose body is read piece by piece; leaving the block closes the connection."""
    target = quote(path, safe="/:@?=&%+,;~!$'()*[]") + ("?" + urlencode(query) if query else "")
    host = "engine" if isinstance(address, UnixAddress) else str(address)
    try:
        with anyio.fail_after(silence_seconds):
            connection = await _connect(address)
    except TimeoutError as error:
        raise ExchangeFailed(f"no answer within {silence_seconds:g} s") from error
    async with connection:
        exchange = _Exchange(connection)
        given = {"Host": host, **_defaults(address, body), **(headers or {})}
        await exchange.send_request(method, target, given, body, silence_seconds)
        try:
            with anyio.fail_after(silence_seconds):
                head = await exchange.read_head()
        except TimeoutError as error:
            raise ExchangeFailed(f"no answer within {silence_seconds:g} s") from error
        yield Streaming(exchange, head, silence_seconds)


def parse_json(content: bytes) -> Any:
    """Raises ValueError for everything that is not JSON, including excessive nesting."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def small_number(text: str) -> int | None:
    """A numeric header; None where it is not a number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None


def parse_proxy(url: str) -> Proxy | None:
    """`http://user:password@proxy:3128`, or without the scheme; None for an unsupported proxy."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or 80
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.hostname:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    authorization = "Basic " + b64encode(login.encode()).decode() if login else None
    return Proxy(TcpAddress(parts.hostname, port), authorization)


def proxy_for(host: str, scheme: str) -> Proxy | None:
    """The proxy of the environment for this host; None for this machine and what the environment excludes."""
    is_unset = sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ)
    if is_unset or is_loopback(host):
        return None
    import urllib.request  # noqa: PLC0415 - brings http.client and email, and most nodes have no proxy

    return None if urllib.request.proxy_bypass(host) else parse_proxy(urllib.request.getproxies().get(scheme, ""))


def route_to(
    parts: SplitResult,
    context: Callable[[], ssl.SSLContext],
    *,
    check: Callable[[ssl.SSLObject], None] | None = None,
) -> Address:
    """Where to connect for a URL: through the proxy of the environment, except for this machine and what the
    environment excludes."""
    host = parts.hostname or ""
    proxy = proxy_for(host, parts.scheme)
    if parts.scheme == "http":
        target = TcpAddress(host, parts.port or 80)
        return target if proxy is None else ForwardProxyAddress(proxy, target)
    return TlsAddress(host, parts.port or 443, context(), check=check, proxy=proxy)


def target_of(parts: SplitResult, address: Address) -> tuple[str, dict[str, str]]:
    """The request's target and the headers that a forward proxy needs for it."""
    if isinstance(address, ForwardProxyAddress):
        return parts._replace(fragment="").geturl(), {"Host": parts.netloc}
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), {}


def reason_of(error: BaseException) -> str:
    """Why the exchange failed, in a few words."""
    inner = getattr(error, "os_error", None)  # of aiohttp, whose own words repeat the address
    cause = error.__cause__ if inner is None else inner
    is_wrapper = inner is not None or (isinstance(error, OSError) and not error.strerror)
    if cause is not None and (is_wrapper or isinstance(cause, ssl.SSLError)):
        # All addresses of a host were tried: report the first failure.
        return reason_of(cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause)
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and (isinstance(error, ssl.SSLError) or _TLS_REASON.match(error.strerror or "")):
        return _tls_reason(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()  # asyncio's message repeats the address
    return str(error) or type(error).__name__


def _tls_reason(error: OSError) -> str:
    """The numbers of TLS errors mean other errors to the system. aiohttp keeps the text alone of a connection that is
    lost later: with TLS 1.3 a refused certificate is."""
    found = _TLS_REASON.match(error.strerror or "")
    reason: str = getattr(error, "reason", None) or (found[1] if found else error.strerror) or "no reason given"
    return "it does not speak TLS" if reason in _NO_TLS else f"TLS failed: {reason.replace('_', ' ').lower()}"


def _defaults(address: Address, body: bytes) -> dict[str, str]:
    headers = {"Connection": "close", "Content-Length": str(len(body))}
    if body:
        headers["Content-Type"] = "application/json"
    if isinstance(address, ForwardProxyAddress) and address.proxy.authorization:
        headers["Proxy-Authorization"] = address.proxy.authorization
    return headers


async def _connect(address: Address) -> anyio.abc.ByteStream:
    if isinstance(address, UnixAddress):
        return UnixStream(await anyio.connect_unix(address.path))
    if isinstance(address, TcpAddress):
        return await anyio.connect_tcp(await reachable(address.host, address.port), address.port)
    if isinstance(address, ForwardProxyAddress):
        # A proxy resolves the name by itself, perhaps to an address of our network: that is judged here too.
        await reachable(address.target.host, address.target.port)
        return await anyio.connect_tcp(address.proxy.address.host, address.proxy.address.port)
    plain: anyio.abc.ByteStream
    host = await reachable(address.host, address.port)
    if address.proxy is None:
        plain = await anyio.connect_tcp(host, address.port)
    else:
        plain = await _tunnel(address, address.proxy)
    try:
        secured = await TLSStream.wrap(
            plain,
            hostname=address.server_name or address.host,
            ssl_context=address.context,
            standard_compatible=False,
        )
        if address.check is not None:
            address.check(secured.extra(TLSAttribute.ssl_object))
    except (anyio.BrokenResourceError, anyio.EndOfStream) as error:
        await anyio.aclose_forcefully(plain)
        raise ExchangeFailed("the connection was closed during the TLS handshake") from error
    except BaseException:
        await anyio.aclose_forcefully(plain)
        raise
    return secured


async def _tunnel(address: TlsAddress, proxy: Proxy) -> anyio.abc.ByteStream:
    connection = await anyio.connect_tcp(proxy.address.host, proxy.address.port)
    try:
        exchange = _Exchange(connection)
        headers = {"Host": str(address)}
        if proxy.authorization:
            headers["Proxy-Authorization"] = proxy.authorization
        await exchange.send_request("CONNECT", str(address), headers, b"", 30.0)
        status = (await exchange.read_head()).status_code
    except BaseException:
        await anyio.aclose_forcefully(connection)
        raise
    if status != 200:
        await anyio.aclose_forcefully(connection)
        raise ExchangeFailed(f"the proxy {proxy.address} answered {status}")
    return connection


class _Exchange:
    def __init__(self, connection: anyio.abc.ByteStream) -> None:
        self._connection = connection
        self._protocol = h11.Connection(h11.CLIENT)

    async def send_request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes, silence_seconds: float
    ) -> None:
        """In chunks, each with its own timeout: a large body may take long on a slow line."""
        try:
            request = h11.Request(method=method, target=target, headers=list(headers.items()))
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise ExchangeFailed(f"the request cannot be sent: {error}") from error
        head = self._protocol.send(request) or b""
        view, pieces = memoryview(body), range(0, len(body), PIECE)
        parts = [self._protocol.send(h11.Data(data=bytes(view[at : at + PIECE]))) or b"" for at in pieces]
        end = self._protocol.send(h11.EndOfMessage()) or b""
        try:
            for part in [head + parts[0], *parts[1:]] if parts else [head]:
                with anyio.fail_after(silence_seconds):
                    await self._connection.send(part)
            if end:
                await self._connection.send(end)
        except TimeoutError as error:
            raise ExchangeFailed(f"no answer within {silence_seconds:g} s") from error
        except anyio.BrokenResourceError as error:
            raise ExchangeFailed("the connection was closed") from error

    async def read_head(self) -> h11.Response:
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event

    async def next_event(self) -> h11.Event:
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                self._protocol.receive_data(await self._receive())
        except h11.RemoteProtocolError as error:
            raise ExchangeFailed(f"the answer is not HTTP: {error}") from error
        if isinstance(event, h11.Event):
            return event
        raise ExchangeFailed("the connection was closed")

    async def _receive(self) -> bytes:
        try:
            return await self._connection.receive(65536)
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, ssl.SSLError) as error:
            raise ExchangeFailed("the connection was closed") from error
