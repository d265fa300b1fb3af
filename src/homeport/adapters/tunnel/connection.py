"""A tunnel over an asyncio transport: the multiplexer of `core.tunnel.mux` with tasks, timers and back-pressure.

Small frames of one turn of the event loop leave as one write. Writers take turns, one frame each, while the
connection is congested, so a large transfer does not starve a terminal. A connection that is silent is pinged, and
closed when nothing comes back.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol

import anyio

from homeport import __version__
from homeport.core.model.protocol import VERSION, PeerProtocol, skew
from homeport.core.tunnel.counts import TunnelCounts
from homeport.core.tunnel.frames import DATA_BYTES_MAX, TunnelProtocolError
from homeport.core.tunnel.mux import (
    HEADER_BYTES_MAX,
    Event,
    Mux,
    PeerGreeted,
    PeerLeft,
    StreamAccepted,
    StreamCredited,
    StreamData,
    StreamEnded,
    StreamOpened,
    StreamRefused,
    StreamReset,
)
from homeport.errors import HomeportError, InvalidInput, PeerIncompatible, PeerUnavailable, TooLarge
from homeport.log import get_log
from homeport.ports import AnswerStream, TunnelHeader
from homeport.wire.answers import encode_error, raise_error

log = get_log("homeport.tunnel")

OPEN_SECONDS_MAX: Final = 20.0
"""How long the other end may take to accept or refuse a stream."""
SILENCE_SECONDS: Final = 15.0
"""A connection that was silent for so long is pinged, and after two further times it is dead."""
FLUSH_BYTES: Final = 256 * 1024
UNSENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much may wait for a peer that does not read, beyond what writers wait for: answers to its own frames."""
LEAVE_SECONDS_MAX: Final = 1.0


class Codec(Protocol):
    """What lies between the tunnel's bytes and the connection's: a WebSocket, or nothing."""

    def encode(self, data: bytes) -> bytes: ...
    def decode(self, data: bytes) -> tuple[bytes, bytes]:
        """The tunnel's bytes, and an answer to send. Raises TunnelProtocolError."""
        ...

    def farewell(self) -> bytes: ...


class MuxStream:
    """`ports.TunnelStream` and `ports.IncomingStream`."""

    def __init__(self, connection: "MuxConnection", number: int, header: TunnelHeader) -> None:
        self.header = header
        self.accepted: TunnelHeader = {}
        self._connection = connection
        self._number = number
        self._received: deque[bytes] = deque()
        self._changed = asyncio.Event()
        """Something arrived that a waiting task may be waiting for."""
        self._has_answer = False
        self._is_ended = False
        self._error: HomeportError | None = None

    async def accept(self, said: TunnelHeader) -> None:
        self._check()
        self._has_answer = True
        self._connection.mux.accept(self._number, encode_header(said))
        self._connection.flush_soon()

    async def read(self, size_max: int = DATA_BYTES_MAX) -> bytes:
        while not self._received:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return b""
            await self._wait()
        data = self._received.popleft()
        if len(data) > size_max:
            self._received.appendleft(data[size_max:])
            data = data[:size_max]
        self._connection.mux.consumed(self._number, len(data))
        self._connection.flush_soon()
        return data

    async def write(self, data: bytes) -> None:
        view = data
        while view:
            self._check()
            async with self._connection.turn:
                await self._connection.writable.wait()
                self._check()
                if not self._connection.mux.has(self._number):
                    raise PeerUnavailable("The stream is closed.")
                count = self._connection.mux.send(self._number, view)
                self._connection.flush_soon()
            if count:
                view = view[count:]
            else:
                await self._wait()

    async def end(self) -> None:
        self._check()
        self._connection.mux.end(self._number)
        self._connection.flush_soon()

    def close(self, error: HomeportError | None = None) -> None:
        """Refuses, resets or forgets the stream, as it stands."""
        mux, said = self._connection.mux, b"" if error is None else encode_header(encode_error(error))
        if self.header and not self._has_answer:
            mux.refuse(self._number, said)
            self._connection.counts.refused += 1
        else:
            self._connection.counts.resets += mux.has(self._number)
            mux.reset(self._number, said)
        self._connection.forget(self._number)

    async def answered(self) -> None:
        """Waits until the other end has accepted; raises its refusal."""
        while not self._has_answer:
            self._check()
            await self._wait()

    def take(self, event: Event) -> None:
        """Called by the connection."""
        match event:
            case StreamAccepted():
                self.accepted, self._has_answer = decode_header(event.header), True
            case StreamRefused() | StreamReset():
                counts, is_reset = self._connection.counts, isinstance(event, StreamReset)
                counts.resets, counts.refused = counts.resets + is_reset, counts.refused + (not is_reset)
                self._error = _error_of(event.header)
            case StreamData():
                self._received.append(event.data)
            case StreamEnded():
                self._is_ended = True
            case _:
                pass
        self._changed.set()

    def fail(self, error: HomeportError) -> None:
        if self._error is None:
            self._error = error
        self._changed.set()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        """Reader and writer may both wait: each clears the event before it looks again."""
        self._changed.clear()
        await self._changed.wait()


class MuxConnection(asyncio.Protocol):
    """`ports.TunnelConnection`. `peer` is what the other end is called in messages."""

    def __init__(
        self,
        *,
        peer: str,
        is_opener: bool,
        codec: Codec | None = None,
        on_lost: Callable[[Exception | None], None] = lambda error: None,
    ) -> None:
        self.mux = Mux(is_opener)
        self.turn = asyncio.Lock()
        self.writable = asyncio.Event()
        self.counts = TunnelCounts()
        self._peer = peer
        self._codec = codec
        self._on_lost = on_lost
        self._streams: dict[int, MuxStream] = {}
        self._incoming: deque[MuxStream] = deque()
        self._has_incoming = asyncio.Event()
        self._over = asyncio.Event()
        self._lost = asyncio.Event()
        self._why = ""
        self._left = ""
        """Why no further streams may be opened; empty while they may."""
        self._transport: asyncio.Transport | None = None
        self._is_flushing = False
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def streams(self) -> int:
        return len(self._streams)

    # --- for users ---

    @asynccontextmanager
    async def open(self, header: TunnelHeader) -> AsyncIterator[MuxStream]:
        stream = self._begin(header)
        error: HomeportError | None = None
        try:
            try:
                with anyio.fail_after(OPEN_SECONDS_MAX):
                    await stream.answered()
            except TimeoutError:
                raise PeerUnavailable(
                    f"{_sentence(self._peer)} has not answered within {OPEN_SECONDS_MAX:.0f} s.", hint="Try again."
                ) from None
            yield stream
        except HomeportError as raised:
            error = raised
            raise
        finally:
            stream.close(error)

    async def serve(self, answer: AnswerStream) -> None:
        async with anyio.create_task_group() as tasks:
            while not self._over.is_set():
                while self._incoming:
                    tasks.start_soon(self._answer, answer, self._incoming.popleft())
                self._has_incoming.clear()
                await self._has_incoming.wait()
            # Streams end by themselves: each raises in its reader or writer.

    async def closed(self) -> str:
        await self._over.wait()
        return self._why

    def leave(self, reason: str) -> None:
        if self._transport is not None and not self._over.is_set():
            self._left = self._left or reason
            self.mux.leave(reason[:1000])
            self.flush_soon()

    def close(self, reason: str) -> None:
        if self._over.is_set():
            return
        self.leave(reason)
        self._flush()
        transport = self._transport
        if transport is not None:
            if self._codec is not None:
                transport.write(self._codec.farewell())
            transport.close()
            asyncio.get_running_loop().call_later(LEAVE_SECONDS_MAX, _abort, transport)
        self._end(reason)

    async def aclose(self, reason: str) -> None:
        """Also waits until the connection is gone, for a short while."""
        self.close(reason)
        with anyio.move_on_after(2 * LEAVE_SECONDS_MAX, shield=True):
            await self._lost.wait()

    async def _answer(self, answer: AnswerStream, stream: MuxStream) -> None:
        error: HomeportError | None = None
        try:
            await answer(stream)
        except HomeportError as raised:
            error = raised
        except Exception:
            log.exception("tunnel stream failed with an internal error")
            error = PeerUnavailable("It failed for a reason that is in the log of the role that was asked.")
        finally:
            stream.close(error)

    def _begin(self, header: TunnelHeader) -> MuxStream:
        encoded = encode_header(header)
        if self._over.is_set() or self._left:
            raise PeerUnavailable(f"The tunnel to {self._peer} is closing: {self._why or self._left}.")
        number = self.mux.open(encoded)
        if number is None:
            raise PeerUnavailable(
                f"The tunnel to {self._peer} has {len(self.mux)} streams already.", hint="Try again in a moment."
            )
        self.counts.opened += 1
        stream = self._streams[number] = MuxStream(self, number, {})
        self.flush_soon()
        return stream

    def forget(self, number: int) -> None:
        self._streams.pop(number, None)
        self.flush_soon()

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.writable.set()
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._timer = loop.call_later(SILENCE_SECONDS, self._watch)
        self.mux.greet(encode_header({"protocol": VERSION, "version": __version__}))
        self.flush_soon()

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        try:
            if self._codec is not None:
                data, answer = self._codec.decode(data)
                if answer and self._transport is not None:
                    self._transport.write(answer)
                    self._break_if_unread(self._transport)
            self.counts.received_bytes += len(data)
            for event in self.mux.receive(data):
                self._take(event)
        except (TunnelProtocolError, InvalidInput) as error:
            log.warning("malformed message on a tunnel", peer=self._peer, why=str(error))
            self._break(f"it sent what cannot be read: {error}")
            return
        except PeerIncompatible as error:
            self._break(str(error))
            return
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else self._left or "the connection was closed")
        self._lost.set()
        self._on_lost(exc)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def flush_soon(self) -> None:
        if self.mux.output_bytes >= FLUSH_BYTES:
            self._flush()
        elif self.mux.output_bytes and not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        output = self.mux.take_output()
        if output and self._transport is not None and not self._transport.is_closing():
            self.counts.sent_bytes += len(output)
            self._transport.write(output if self._codec is None else self._codec.encode(output))
            self._break_if_unread(self._transport)

    def _break_if_unread(self, transport: asyncio.Transport) -> None:
        """Writers wait while the connection is congested; pongs, refusals and credit do not, and a peer decides how
        many of them there are."""
        if not self.writable.is_set() and transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self._break("it does not read what it asked for")

    def _take(self, event: Event) -> None:
        match event:
            case StreamOpened() if len(self._streams) >= 2 * self.mux.streams_max:
                # Opened and reset by the thousand: what answers them is still at work.
                raise TunnelProtocolError("streams are opened faster than they end")
            case StreamOpened():
                stream = self._streams[event.stream] = MuxStream(self, event.stream, decode_header(event.header))
                self.counts.opened += 1
                self._incoming.append(stream)
                self._has_incoming.set()
            case PeerGreeted():
                self._check_version(decode_header(event.header))
            case PeerLeft():
                self._left = self._left or event.reason
            case StreamCredited() | StreamAccepted() | StreamRefused() | StreamReset() | StreamData() | StreamEnded():
                found = self._streams.get(event.stream)
                if found is not None:
                    found.take(event)

    def _check_version(self, said: TunnelHeader) -> None:
        why = skew(self._peer, PeerProtocol.said(said.get("protocol")), us="this end")
        if why is not None:
            raise PeerIncompatible(why)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        silent = loop.time() - self._heard_at
        if silent >= 3 * SILENCE_SECONDS:
            self._break("it has not answered for too long")
            return
        if silent >= SILENCE_SECONDS:
            self.mux.ping()
            self.flush_soon()
        self._timer = loop.call_later(SILENCE_SECONDS, self._watch)

    def _break(self, why: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(why)

    def _end(self, why: str) -> None:
        if self._over.is_set():
            return
        self._why = why
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
        self.writable.set()
        self._has_incoming.set()
        error = PeerUnavailable(f"The tunnel to {self._peer} was lost: {why}.", hint="Try again.")
        for stream in self._streams.values():
            stream.fail(error)


def encode_header(header: Mapping[str, Any]) -> bytes:
    encoded = json.dumps(header, separators=(",", ":")).encode()
    if len(encoded) > HEADER_BYTES_MAX:
        raise TooLarge(f"What opens a stream of a tunnel is limited to {HEADER_BYTES_MAX} bytes.")
    return encoded


def decode_header(content: bytes) -> dict[str, Any]:
    """Raises InvalidInput."""
    try:
        found = json.loads(content) if content else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInput("A message on the tunnel is not JSON.") from error
    if not isinstance(found, dict):
        raise InvalidInput("A message on the tunnel is not an object.")
    return found


def _error_of(content: bytes) -> HomeportError:
    try:
        raise_error(decode_header(content))
    except HomeportError as error:
        return error
    return PeerUnavailable("The other end closed the stream.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _abort(transport: asyncio.WriteTransport) -> None:
    """Debian 12's Python fails when a TLS connection is aborted that has been closed."""
    with suppress(AttributeError):
        transport.abort()
