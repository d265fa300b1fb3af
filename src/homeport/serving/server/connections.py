"""One connection of the web server: limits and authentication that uvicorn's own protocol lacks.

A head that arrives too slowly or grows too large ends the connection, and so does a slow body. A machine's
certificate is verified after the handshake and again while the connection is open, because certificates expire and
accepted machines change; the identity reaches the application as part of the scope, never as a header.
"""

import asyncio
import json
import os
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, BinaryIO, Final

from anyio import to_thread
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from homeport.core.model.identity import Peer
from homeport.core.values.addresses import is_loopback
from homeport.errors import HomeportError
from homeport.log import get_log
from homeport.serving.server.limits import Limits

PEER: Final = "homeport.peer"
"""Under `scope["extensions"]`: the authenticated machine, or None."""
SEND_FILE: Final = "homeport.send-file"
"""Under `scope["extensions"]`: `SendFile`, for the body of a response of known length."""
UPGRADE: Final = "homeport.upgrade"
"""Under `scope["extensions"]`: `Upgrade`, for a request that asks to switch protocols. Until then it is a request
like any other: authenticated, authorized and, where it is refused, answered and recorded."""
VERIFY_AGAIN_SECONDS: Final = 1.0
VERIFY_UPGRADED_SECONDS: Final = 60.0
"""How long a connection with another protocol may outlive its peer's certificate."""
FILE_PART_BYTES: Final = 64 * 1024 * 1024
"""How much of a file the client must read within `FILE_PART_SECONDS`: 70 KB a second at least. Smaller parts cost
throughput, a quarter at 4 MiB."""
FILE_PART_SECONDS: Final = 960.0
STALLED_MILLISECONDS: Final = 60_000
"""After how long the system gives up on a client that reads nothing at all (TCP_USER_TIMEOUT)."""
FILE_READ_BYTES: Final = 512 * 1024
"""How much is read at once where TLS needs the bytes in memory."""
LOOPBACK_BUFFER_BYTES: Final = 512 * 1024
"""How much may wait in the socket for a client on this machine. The system would let it grow to 4 MiB, more than the
processor's caches hold: a file took a tenth to a third longer. For a client elsewhere the system finds what its
distance needs."""

log = get_log("homeport.serving")

Verify = Callable[[ssl.SSLObject], Peer | None]
"""The peer; None without a certificate. Raises Refused for an invalid one."""
OnRefused = Callable[[str, str, str], None]
"""Called for connections refused before any request: address, code, reason."""
OnLost = Callable[[Exception | None], None]
Upgrade = Callable[[Callable[[OnLost], asyncio.Protocol], Mapping[str, str]], None]
"""Answers 101 with these headers, and hands the connection to the protocol that the function creates, which has to
call the one it was given when the connection is lost."""
ProblemOf = Callable[[int, str, str], Mapping[str, Any]]
"""The problem document of a refusal below the application: status, detail, code."""
Prompt = Callable[[Peer | None, bytes, bytes, Sequence[tuple[bytes, bytes]]], tuple[int, bytes] | None]
"""Answers a request from memory, without a task: peer, method, target and headers. Returns the status, and the bytes
that follow the status line and the Date; None leaves the request to the application."""
SendFile = Callable[[BinaryIO, int, int], Awaitable[None]]
"""Sends a part of a file: offset and count. Raises OSError where the client has disconnected or reads nothing."""


@dataclass(slots=True)
class Counts:
    """The open connections of one server."""

    total: int = 0
    by_address: Counter[str] = field(default_factory=Counter)


class JoinedWrites:
    """What uvicorn writes of one response: its head waits for the first part of the body, which mostly follows at
    once, so that both are one packet and one call of the system. Where nothing follows in the same step of the event
    loop, the head is sent by itself."""

    __slots__ = ("_head", "_is_begun", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if self._is_begun:
            head, self._head = self._head, b""
            self._transport.write(head + data if head else data)
            return
        self._is_begun, self._head = True, data
        self._loop.call_soon(self.flush)

    def flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class Connection(HttpToolsProtocol):
    """What is named first is set by `connection_class`, because uvicorn creates the instances."""

    limits: Limits
    verify: Verify | None
    counts: Counts
    on_refused: OnRefused | None
    prompt: Prompt | None
    problem: ProblemOf

    _peer: Peer | None = None
    _verified_at = 0.0
    _is_admitted = False
    _arrived_bytes = 0
    _head_bytes = 0
    _in_head = True
    _in_body = False
    _is_answered = False
    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _age_timer: asyncio.TimerHandle | None = None
    _writes: JoinedWrites | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._admit():
            transport.abort()
            return
        if not self._is_trusted():
            transport.abort()
            return
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)
        if self._peer is not None:
            self._age_timer = self.loop.call_later(self.limits.connection_seconds, self._retire)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._body_timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        if self._is_admitted:
            self.counts.total -= 1
            address = self._address()
            self.counts.by_address[address] -= 1
            if self.counts.by_address[address] <= 0:
                del self.counts.by_address[address]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._arrived_bytes = len(data)
        super().data_received(data)
        # Timers only for what has not arrived as a whole: most requests do.
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes_max:
                self._refuse(431, "The head of the request is too large.", "head-too-large")
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)
        elif self._in_body and self._body_timer is None:
            self._body_timer = self.loop.call_later(self.limits.body_seconds, self._too_slow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if self._is_head_too_large():
            self._refuse(431, "The head of the request is too large.", "head-too-large")
            return
        if not self._is_trusted():
            self._refuse(403, "The certificate of this connection is no longer trusted.", "not-authorized")
            return
        if self.prompt is not None and self._answer_promptly(self.prompt):
            self._is_answered = True
            return
        scope: Any = self.scope
        scope["extensions"] = {PEER: self._peer, SEND_FILE: self.send_file, UPGRADE: self.upgrade}
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before and scope["method"] != "HEAD":  # whose response is its head
            self._writes = JoinedWrites(self.transport, self.loop)
            self.cycle.transport = self._writes  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing() and not self._is_answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if self._is_answered:
            self._is_answered = False
            keep_seconds = self.timeout_keep_alive
            self.timeout_keep_alive_task = self.loop.call_later(keep_seconds, self.timeout_keep_alive_handler)
        elif not self.transport.is_closing():
            super().on_message_complete()

    def _is_head_too_large(self) -> bool:
        most = self.limits.head_bytes_max
        if self._head_bytes + self._arrived_bytes <= most:
            return False  # with all that came behind it
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > most

    def _answer_promptly(self, prompt: Prompt) -> bool:
        """Never out of turn, to a client that does not read, or before the connection is to be closed."""
        last: Any = self.cycle
        is_free = last is None or last.response_complete
        if not is_free or self.flow.write_paused or not self.parser.should_keep_alive():
            return False
        found = prompt(self._peer, self.parser.get_method(), self.url, self.headers)
        if found is None:
            return False
        status, rest = found
        lines = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            lines += (name, b": ", value, b"\r\n")
        lines.append(rest)
        self.transport.write(b"".join(lines))
        return True

    def upgrade(self, make: Callable[[OnLost], asyncio.Protocol], headers: Mapping[str, str]) -> None:
        """See `Upgrade`. The connection counts as before, and its certificate is verified again and again."""
        if self._age_timer is not None:
            self._age_timer.cancel()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n{lines}\r\n".encode())
        self.cycle.response_started = self.cycle.response_complete = True
        protocol = make(self.connection_lost)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self._age_timer = self.loop.call_later(VERIFY_UPGRADED_SECONDS, self._verify_upgraded)

    def _verify_upgraded(self) -> None:
        if not self._is_trusted():
            self.transport.abort()
            return
        self._age_timer = self.loop.call_later(VERIFY_UPGRADED_SECONDS, self._verify_upgraded)

    def _unsupported_upgrade_warning(self) -> None:
        """The routes decide which protocols there are."""

    async def send_file(self, file: BinaryIO, offset: int, count: int) -> None:
        """From the disk to the socket, without a copy where there is no TLS. On failure the connection is closed: the
        client was promised more."""
        cycle, is_tls = self.cycle, self.transport.get_extra_info("ssl_object") is not None
        if self._writes is not None:
            self._writes.flush()
        cycle.expected_content_length -= count
        line = self.transport.get_extra_info("socket")
        if is_loopback(self._address()):
            line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOOPBACK_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux has it
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MILLISECONDS)
        send_part = self._copy_part if is_tls else self._send_part
        end = offset + count
        try:
            while offset < end:
                part = min(FILE_PART_BYTES, end - offset)
                async with asyncio.timeout(FILE_PART_SECONDS):
                    await send_part(file, offset, part)
                offset += part
        except BaseException:
            self.transport.abort()
            raise

    async def _send_part(self, file: BinaryIO, offset: int, count: int) -> None:
        if self.transport.is_closing():
            raise ConnectionResetError("the other end is gone")
        if await self.loop.sendfile(self.transport, file, offset, count) != count:
            raise OSError("the file is shorter than it was")

    async def _copy_part(self, file: BinaryIO, offset: int, count: int) -> None:
        end = offset + count
        while offset < end:
            content = await to_thread.run_sync(os.pread, file.fileno(), min(FILE_READ_BYTES, end - offset), offset)
            if not content:
                raise OSError("the file is shorter than it was")
            await self.flow.drain()
            if self.transport.is_closing():
                raise ConnectionResetError("the other end is gone")
            self.transport.write(content)
            offset += len(content)

    def _admit(self) -> bool:
        """Whether there is room for one more."""
        address = self._address()
        if self.counts.total >= self.limits.connections_max:
            log.warning("connection rejected, too many connections", open=self.counts.total)
            return False
        mine = self.counts.by_address[address]
        if mine >= self.limits.connections_per_address_max and not is_loopback(address):
            log.warning("connection rejected, too many from one address", address=address, open=mine)
            return False
        self._is_admitted = True
        self.counts.total += 1
        self.counts.by_address[address] += 1
        return True

    def _is_trusted(self) -> bool:
        """Whether the peer has no certificate, or one that is trusted right now."""
        found = self.transport.get_extra_info("ssl_object")
        if self.verify is None or found is None:
            return True
        now = self.loop.time()
        if self._verified_at and now - self._verified_at < VERIFY_AGAIN_SECONDS:
            return True
        try:
            self._peer = self.verify(found)
        except HomeportError as error:
            log.warning("certificate refused", address=self._address(), why=str(error))
            if self.on_refused is not None:
                self.on_refused(self._address(), "not-authorized", str(error))
            return False
        self._verified_at = now
        return True

    def _too_slow(self) -> None:
        """Without a response: a client that sends bytes this slowly does not wait for one."""
        log.debug("connection closed, the request came too slowly", address=self._address())
        self.transport.abort()

    def _retire(self) -> None:
        """The client reconnects and presents its certificate again. What is not answered yet is answered first;
        streams resume where they were."""
        last: Any = self.cycle
        if last is not None and not last.response_started:
            last.keep_alive = False
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str, code: str) -> None:
        """Responds below the application, and closes."""
        if self.on_refused is not None and code != "not-authorized":
            self.on_refused(self._address(), code, detail)
        body = json.dumps(self.problem(status, detail, code)).encode()
        usual = b"".join(b"%s: %s\r\n" % header for header in self.server_state.default_headers)
        head = f"content-type: application/problem+json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + usual + head.encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's own is plain text."""
        self._refuse(400, "This is not an HTTP/1.1 request.", "malformed-request")

    def _address(self) -> str:
        return str(self.client[0]) if self.client else ""


def own_problem(status: int, detail: str, code: str) -> Mapping[str, Any]:
    return {
        "type": f"urn:homeport:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": False,
        "backoffStrategy": "none",
        "errors": [],
    }


def connection_class(
    limits: Limits,
    verify: Verify | None,
    on_refused: OnRefused | None = None,
    prompt: Prompt | None = None,
    problem: ProblemOf = own_problem,
) -> type[Connection]:
    """The protocol class for one server."""
    return type(
        "Connection",
        (Connection,),
        {
            "limits": limits,
            "verify": staticmethod(verify) if verify else None,
            "counts": Counts(),
            "on_refused": staticmethod(on_refused) if on_refused else None,
            "prompt": staticmethod(prompt) if prompt else None,
            "problem": staticmethod(problem),
        },
    )
