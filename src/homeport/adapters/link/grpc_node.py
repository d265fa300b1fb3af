"""The node's end of `homeport.v1.Nodes`, through grpclib: it lets us set the socket's timeout, so that a dead
connection is detected without the server's help, and verify the site's certificate before anything is sent.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from grpclib.client import Channel, Handler, UnaryUnaryMethod
from grpclib.client import Stream as Call
from grpclib.client import StreamStreamMethod as StreamMethod
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.metadata import decode_grpc_message
from grpclib.protocol import H2Protocol

from homeport.adapters.link.grpclib_seam import open_channel, raw_stream, with_pings
from homeport.adapters.local_access import KeyKind, find
from homeport.adapters.network.http_client import reason_of
from homeport.core.values.addresses import is_loopback
from homeport.errors import PeerUnavailable, Refused
from homeport.ports import FromNode, Stream, ToNode
from homeport.vocabulary import NodeId
from homeport.wire import nodes as convert
from homeport.wire.v1 import nodes_pb2 as pb

CONNECT_SECONDS: Final = 5.0
UNANSWERED_SECONDS: Final = 12
"""How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT) before the connection counts as dead."""
PING_SECONDS: Final = 10.0
"""Interval and timeout of pings to the site's process: a proxy or a stopped process would still acknowledge
bytes."""
CLOSE_SECONDS: Final = 1.0
SERVICE: Final = "/homeport.v1.Nodes"

NewContext = Callable[[], ssl.SSLContext]
VerifySite = Callable[[ssl.SSLObject], object]
"""Raises Refused unless the peer is this node's own site."""


class GrpcSiteLink:
    """`ports.SiteLink` over the network. Every connection has its own channel: the node paces reconnects.

    `tls` is called for each connection, so that the next one uses a renewed certificate. Without it only a site on
    the same machine is contacted, with the key that it published in the folder `local_keys`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: NewContext | None = None,
        verify: VerifySite | None = None,
        local_keys: Path | None = None,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        assert (tls is None) == (verify is None), "TLS without a look at the certificate proves nothing"
        if tls is None and not is_loopback(host):
            raise Refused(
                f"Refusing to talk to the site at {host}:{port} without TLS.",
                hint="Join this node to its site first; an administrator has the line:  homeport nodes join-command",
            )
        self._host = host
        self._port = port
        self._tls = tls
        self._verify = verify
        self._local_keys = local_keys if tls is None else None
        self._configuration = with_pings(ping_seconds, ping_seconds, ping_seconds / 2)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Stream]:
        async with self._channel() as channel:
            method = StreamMethod(channel, f"{SERVICE}/Connect", pb.FromNode, pb.ToNode)
            call = method.open(metadata=self._local_key())
            await call.__aenter__()
            try:
                with _translated():
                    await call.send_request()
                yield GrpcStream(call)
            finally:
                await _end(call)

    async def unregister(self, node_id: NodeId) -> None:
        async with self._channel() as channel:
            method = UnaryUnaryMethod(
                channel, f"{SERVICE}/UnregisterNode", pb.UnregisterNodeRequest, pb.UnregisterNodeResponse
            )
            try:
                await method(
                    pb.UnregisterNodeRequest(node_id=node_id), timeout=CONNECT_SECONDS, metadata=self._local_key()
                )
            except GRPCError as error:
                if error.status is not Status.NOT_FOUND:
                    raise PeerUnavailable(f"the site did not take the farewell: {error.message}") from error
            except (OSError, TimeoutError, StreamTerminatedError) as error:
                raise PeerUnavailable(f"the site did not take the farewell: {error}") from error

    def _local_key(self) -> dict[str, str]:
        """Read each time: it changes with each start of the site."""
        found = find(self._local_keys, self._port, KeyKind.MACHINE)
        return {"authorization": f"Bearer {found.key}"} if found is not None and found.opens(self._host) else {}

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Channel]:
        channel = _ChannelWithTimeout(self._host, self._port, self._configuration, self._tls, self._verify)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await open_channel(channel)
        except Refused as error:
            raise PeerUnavailable(f"what answers at {self._host}:{self._port} is not trusted: {error}") from error
        except (OSError, TimeoutError) as error:
            raise PeerUnavailable(f"cannot reach the site at {self._host}:{self._port} ({_cause(error)})") from error
        try:
            yield channel
        finally:
            channel.close()


class GrpcStream:
    """`ports.Stream`. One task may send while another iterates."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._call = call

    async def send(self, message: FromNode) -> None:
        with _translated(self._call):
            await self._call.send_message(convert.from_node_to_proto(message))

    async def __aiter__(self) -> AsyncIterator[ToNode]:
        while True:
            with _translated(self._call):
                message = await self._call.recv_message()
            if message is None:
                said = _end_reason(self._call)
                if said is not None:
                    raise _unavailable(said)
                return
            yield convert.to_node_from_proto(message)


class _Protocol(H2Protocol):
    """Keeps the reason of a lost connection: a refused certificate is reported by TLS, not by gRPC."""

    def connection_lost(self, exc: BaseException | None) -> None:
        self.processor.close("the connection was lost" if exc is None else _cause(exc))


class _ChannelWithTimeout(Channel):
    """Sets TCP_USER_TIMEOUT for a peer that no longer responds; the kernel's default is a quarter of an hour."""

    def __init__(
        self, host: str, port: int, config: Configuration, tls: NewContext | None, verify: VerifySite | None
    ) -> None:
        super().__init__(host, port, ssl=None if tls is None else _for_http2(tls()), config=config)
        self._verify = verify

    def _protocol_factory(self) -> H2Protocol:
        return _Protocol(Handler(), self._config, self._h2_config)

    async def _create_connection(self) -> H2Protocol:
        transport, protocol = await self._loop.create_connection(
            self._protocol_factory,
            self._host,
            self._port,
            ssl=self._ssl,
            ssl_handshake_timeout=CONNECT_SECONDS if self._ssl else None,
            ssl_shutdown_timeout=CLOSE_SECONDS if self._ssl else None,
        )
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_SECONDS * 1000)
        if self._verify is not None:
            try:
                self._verify(transport.get_extra_info("ssl_object"))
            except Refused:
                transport.abort()
                raise
        return protocol


def _for_http2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2"])
    return context


def _cause(error: BaseException) -> str:
    """The part of the lower layers' error that a user can act on."""
    if isinstance(error, OSError) and (error.errno or isinstance(error, ssl.SSLError)):
        return reason_of(error)
    return str(error) or "no answer"


@contextmanager
def _translated(call: Call[Any, Any] | None = None) -> Iterator[None]:
    """grpclib wakes a waiting task by cancelling it. That cancellation is undone, or the task group above would take
    the broken connection for a cancellation of its own."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except (GRPCError, ProtocolError, StreamTerminatedError, OSError) as error:
        while task and task.cancelling() > before:
            task.uncancel()
        said = error if isinstance(error, GRPCError) else None if call is None else _end_reason(call)
        raise _unavailable(said or error) from error


def _end_reason(call: Call[Any, Any]) -> GRPCError | None:
    """Why the site ended the call; None when it gave no reason, or ended it normally. grpclib only reads this after
    the client has ended its side, which the node does not do."""
    headers = dict(raw_stream(call).trailers or raw_stream(call).headers or ())
    status = headers.get("grpc-status", "0")
    if status == "0":
        return None
    known = Status(int(status)) if status.isdigit() and int(status) <= 16 else Status.UNKNOWN
    return GRPCError(known, decode_grpc_message(headers.get("grpc-message", "")))


def _unavailable(error: Exception) -> PeerUnavailable:
    if isinstance(error, GRPCError):
        message = error.message or error.status.name
        if error.status in (Status.PERMISSION_DENIED, Status.UNAUTHENTICATED):
            return PeerUnavailable(f"the site refused this node: {message}")
        return PeerUnavailable(f"the site ended the connection: {message}")
    return PeerUnavailable(f"the connection to the site broke: {error}")


async def _end(call: Call[Any, Any]) -> None:
    with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(PeerUnavailable), _translated():
        await call.cancel()
