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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, BinaryIO, Final, NamedTuple

from anyio import to_thread
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from homeport.core.model.identity import Peer
from homeport.core.values.addresses import is_loopback
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.serving.server.limits import Limits

PEER: Final = "homeport.peer"
"""Under `scope["extensions"]`: the authenticated machine, or None."""
SEND_FILE: Final = "homeport.send-file"
"""Under `scope["extensions"]`: `SendFile`, for the body of a response of known length."""
ABORT: Final = "homeport.abort"
"""Under `scope["extensions"]`: closes the connection at once, in the middle of a response."""
UPGRADE: Final = "homeport.upgrade"
"""Under `scope["extensions"]`: `Upgrade`, for a request that asks to switch protocols. Until then it is a request
like any other: authenticated, authorized and, where it is refused, answered and recorded."""
ON_LOST: Final = "homeport.on-lost"
"""Under `scope["extensions"]`: `WhenLost`."""
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
WhenLost = Callable[[Callable[[], None] | None], None]
"""Has the function called when the connection is lost before the response is complete; None: not any more."""
Upgrade = Callable[[Callable[[OnLost], asyncio.Protocol], Mapping[str, str]], None]
"""Answers 101 with these headers, and hands the connection to the protocol that the function creates, which has to
call the one it was given when the connection is lost."""
ProblemOf = Callable[[int, str, str], Mapping[str, Any]]
"""The problem document of a refusal below the application: status, detail, code."""
Prompt = Callable[[Peer | None, bytes, bytes, Sequence[tuple[bytes, bytes]]], tuple[int, bytes] | None]
"""Answers a request from memory, without a task: peer, method, target and headers. Returns the status, and the bytes
that follow the status line and the Date; None leaves the request to the application."""
Answer = Callable[[int, bytes], None]
"""Sends a whole response, once: the status, and the bytes that follow the status line and the Date."""
TakeBody = Callable[[bytes, Answer], None]
"""Gets the whole body of a request, and answers it now or later."""
Shortcut = Callable[["RequestHead"], TakeBody | None]
"""Takes a request with a body without a task; None leaves it to the application."""
SendFile = Callable[[BinaryIO, int, int], Awaitable[None]]
"""Sends a part of a file: offset and count. Raises OSError where the client has disconnected or reads nothing."""


class RequestHead(NamedTuple):
    """A request whose head has arrived."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    """Names in lower case."""
    address: str
    """Of the client."""
    server: tuple[str, int | None] | None
    scheme: str | None


class _Ignored:
    """Stands for the event that wakes a request's task, where there is none."""

    def set(self) -> None:
        pass


class _Taken:
    """A request that is answered without a task, where uvicorn looks for the one under way: what comes behind it on
    the same connection waits for its end, and a server that stops closes the connection after it."""

    __slots__ = (
        "body",
        "disconnected",
        "keep_alive",
        "message_event",
        "response_complete",
        "response_started",
        "take",
    )

    def __init__(self, take: TakeBody) -> None:
        self.take = take
        self.body: list[bytes] = []
        self.keep_alive = True
        self.disconnected = self.response_started = self.response_complete = False
        self.message_event = _IGNORED


_IGNORED: Final = _Ignored()


@dataclass(slots=True)
class UsualLines:
    """What every response of one server has."""

    _headers: Sequence[tuple[bytes, bytes]] = ()
    _lines: bytes = b""

    def of(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The headers of every response (the Date) as lines. They are another list each second."""
        if headers is not self._headers:
            self._headers, self._lines = headers, b"".join(b"%s: %s\r\n" % header for header in headers)
        return self._lines


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


class HttpConnection(HttpToolsProtocol):
    """What is named first is set by `connection_class`, because uvicorn creates the instances."""

    limits: Limits
    verify: Verify | None
    usual_lines: UsualLines
    on_refused: OnRefused | None
    prompt: Prompt | None
    shortcut: Shortcut | None
    problem: ProblemOf

    _peer: Peer | None = None
    _tls: ssl.SSLObject | None = None
    _verified_at = 0.0
    _arrived_bytes = 0
    _head_bytes = 0
    _discarded_bytes = 0
    """Of the body of a request that has its answer already."""
    _in_head = True
    _in_body = False
    _is_answered = False
    _taken: _Taken | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _age_timer: asyncio.TimerHandle | None = None
    _writes: JoinedWrites | None = None
    _on_lost: Callable[[], None] | None = None
    _idle_since: float | None = None
    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._tls = transport.get_extra_info("ssl_object")
        if not self._is_trusted():
            transport.abort()
            return
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)
        if self._peer is not None:
            self._age_timer = self.loop.call_later(self.limits.connection_seconds, self._retire)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._body_timer, self._age_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        if self._on_lost is not None:
            self._on_lost()
            self._on_lost = None
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
        elif self._in_body:
            if self._body_timer is None:
                self._body_timer = self.loop.call_later(self.limits.body_seconds, self._too_slow)
            self._discard(len(data))

    def _discard(self, count: int) -> None:
        """Of a body whose request has its answer: one without an end is not read for good. The answer arrived before
        it, so that the client can read it."""
        last: Any = self.cycle
        if self._is_answered or (last is not None and last.response_complete):
            self._discarded_bytes += count
            if self._discarded_bytes > self.limits.discarded_bytes_max:
                log.debug("connection closed, the body of an answered request has no end", address=self._address())
                self.transport.abort()

    def on_message_begin(self) -> None:
        """The scope is made when it is known that the request needs one."""
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._in_head, self._head_bytes = True, 0

    def _make_scope(self) -> Any:
        url, headers, expect = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expect
        scope: Any = self.scope
        scope["headers"] = headers
        scope["extensions"] = {
            PEER: self._peer,
            UPGRADE: self.upgrade,
            ON_LOST: self.when_lost,
            ABORT: self.transport.abort,
        }
        return scope

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
        if self.shortcut is not None and self._begin_taking(self.shortcut):
            return
        scope, before = self._make_scope(), self.cycle
        super().on_headers_complete()
        if self.cycle is not before and scope["method"] != "HEAD":  # whose response is its head
            self._writes = JoinedWrites(self.transport, self.loop)
            self.cycle.transport = self._writes  # type: ignore[assignment]
            # Of this request: the next one may have arrived before its file is sent.
            scope["extensions"][SEND_FILE] = partial(self.send_file, self.cycle, self._writes)

    def on_body(self, body: bytes) -> None:
        if self._taken is not None:
            self._taken.body.append(body)
        elif not self.transport.is_closing() and not self._is_answered:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._discarded_bytes = False, 0
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if self._taken is not None:
            taken, self._taken = self._taken, None
            taken.take(b"".join(taken.body), partial(self._answer_taken, taken))
        elif self._is_answered:
            self._is_answered = False
            self._be_idle()
        elif not self.transport.is_closing():
            super().on_message_complete()

    def when_lost(self, call: Callable[[], None] | None) -> None:
        """See `WhenLost`. Requests of one connection are served one after the other."""
        self._on_lost = call
        if call is None:
            return
        if self.transport.is_closing():
            self.loop.call_soon(call)
        else:
            self.flow.resume_reading()  # a large body may have stopped it, and nothing else notices the end

    def on_response_complete(self) -> None:
        """Like uvicorn's own, with one timer for the connection instead of one for each response."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._be_idle()

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None
        super()._unset_keepalive_if_required()

    def _be_idle(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)
        else:
            self.timeout_keep_alive_handler()

    def _is_head_too_large(self) -> bool:
        most = self.limits.head_bytes_max
        if self._head_bytes + self._arrived_bytes <= most:
            return False  # with all that came behind it
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > most

    def _begin_taking(self, shortcut: Shortcut) -> bool:
        if not self._can_be_prompt() or self.expect_100_continue or self.parser.should_upgrade():
            return False
        take = shortcut(
            RequestHead(self.parser.get_method(), self.url, self.headers, self._address(), self.server, self.scheme)
        )
        if take is None:
            return False
        taken: Any = _Taken(take)
        self._taken = self.cycle = taken
        return True

    def _answer_taken(self, taken: _Taken, status: int, rest: bytes) -> None:
        assert not taken.response_complete, "it is answered once"
        taken.response_complete = True
        if self.transport.is_closing():
            return
        usual = self.usual_lines.of(self.server_state.default_headers)
        self.transport.write(STATUS_LINE[status] + usual + rest)
        if not taken.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _can_be_prompt(self) -> bool:
        """Never out of turn, to a client that does not read, or before the connection is to be closed."""
        last: Any = self.cycle
        is_free = last is None or last.response_complete
        return bool(is_free and not self.flow.write_paused and self.parser.should_keep_alive())

    def _answer_promptly(self, prompt: Prompt) -> bool:
        if not self._can_be_prompt():
            return False
        found = prompt(self._peer, self.parser.get_method(), self.url, self.headers)
        if found is None:
            return False
        status, rest = found
        usual = self.usual_lines.of(self.server_state.default_headers)
        self.transport.write(STATUS_LINE[status] + usual + rest)
        return True

    def upgrade(self, make: Callable[[OnLost], asyncio.Protocol], headers: Mapping[str, str]) -> None:
        """See `Upgrade`. The connection counts as before, and its certificate is verified again and again."""
        for timer in (self._age_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n{lines}\r\n".encode())
        # In HTTP nothing more is said: what the application still answers, as to a removed caller, is dropped.
        self.cycle.response_started = self.cycle.response_complete = self.cycle.disconnected = True
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

    async def send_file(
        self, cycle: RequestResponseCycle, writes: JoinedWrites, file: BinaryIO, offset: int, count: int
    ) -> None:
        """From the disk to the socket, without a copy where there is no TLS. On failure the connection is closed: the
        client was promised more."""
        is_tls = self.transport.get_extra_info("ssl_object") is not None
        writes.flush()
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

    def _is_trusted(self) -> bool:
        """Whether the peer has no certificate, or one that is trusted right now."""
        if self.verify is None or self._tls is None:
            return True
        now = self.loop.time()
        if self._verified_at and now - self._verified_at < VERIFY_AGAIN_SECONDS:
            return True
        try:
            self._peer = self.verify(self._tls)
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
        usual = self.usual_lines.of(self.server_state.default_headers)
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
    *,
    prompt: Prompt | None = None,
    shortcut: Shortcut | None = None,
    problem: ProblemOf = own_problem,
) -> type[HttpConnection]:
    """The protocol class for one server."""
    return type(
        "HttpConnection",
        (HttpConnection,),
        {
            "limits": limits,
            "verify": staticmethod(verify) if verify else None,
            "usual_lines": UsualLines(),
            "on_refused": staticmethod(on_refused) if on_refused else None,
            "prompt": staticmethod(prompt) if prompt else None,
            "shortcut": staticmethod(shortcut) if shortcut else None,
            "problem": staticmethod(problem),
        },
    )
