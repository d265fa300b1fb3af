"""Many streams over one connection, without input or output of its own: bytes in, events and bytes out.

One end opens streams, the other answers: a site cannot open a stream at central. Each stream has credit of its own:
the sender may have so many bytes on the way as the receiver has room for, so a slow reader holds back its own stream
and no other, and what waits for readers is bounded. A peer that sends beyond its credit is disconnected.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from homeport.core.tunnel.frames import (
    CREDIT,
    CREDIT_MAX,
    DATA_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameKind,
    FrameReader,
    TunnelProtocolError,
    encode_frame,
)
from homeport.lazy_dataclass import dataclass

STREAMS_MAX: Final = 512
WINDOW_BYTES_MAX: Final = 1024 * 1024
"""The credit of a stream while there are few: 10 MB/s at 100 ms of round trip."""
WINDOW_BYTES_MIN: Final = 64 * 1024
BUDGET_BYTES: Final = 32 * 1024 * 1024
"""For the windows of all streams; beyond it each further one gets the smallest window."""
HEADER_BYTES_MAX: Final = 32 * 1024
"""Of what an opening, an acceptance, a refusal or a reset says."""


@dataclass(frozen=True, slots=True)
class PeerGreeted:
    header: bytes


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The other end asks for a stream: answer with `accept` or `refuse`."""

    stream: int
    header: bytes


@dataclass(frozen=True, slots=True)
class StreamAccepted:
    stream: int
    header: bytes


@dataclass(frozen=True, slots=True)
class StreamRefused:
    stream: int
    header: bytes


@dataclass(frozen=True, slots=True)
class StreamData:
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StreamCredited:
    stream: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    stream: int


@dataclass(frozen=True, slots=True)
class StreamReset:
    stream: int
    header: bytes


@dataclass(frozen=True, slots=True)
class PeerLeft:
    reason: str


Event = (
    PeerGreeted
    | StreamOpened
    | StreamAccepted
    | StreamRefused
    | StreamData
    | StreamCredited
    | StreamEnded
    | StreamReset
    | PeerLeft
)


@dataclass(slots=True)
class _Stream:
    window: int
    """How many bytes the other end may have on the way to us, at most."""
    granted: int
    """How many of them it may still send."""
    credit: int = 0
    """How many bytes we may send."""
    unreturned: int = 0
    """Consumed bytes that were not announced to the other end yet."""
    is_accepted: bool = False
    has_ended: bool = False
    is_ended_by_peer: bool = False


@dataclass(slots=True)
class Mux:
    is_opener: bool
    streams_max: int = STREAMS_MAX
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _last: int = 0
    _windows: int = 0
    _reader: FrameReader = field(default_factory=FrameReader)
    _output: list[bytes] = field(default_factory=list)
    output_bytes: int = 0
    """How many bytes wait for `take_output`."""
    unknown_frames: int = 0

    def __len__(self) -> int:
        return len(self._streams)

    # --- sending ---

    def greet(self, header: bytes) -> None:
        self._emit(FrameKind.HELLO, 0, header)

    def open(self, header: bytes) -> int | None:
        """The number of the new stream; None where there are as many as there may be."""
        assert self.is_opener, "the other end opens streams"
        if len(self._streams) >= self.streams_max:
            return None
        self._last += 1
        stream = self._add(self._last)
        self._emit(FrameKind.OPEN, self._last, CREDIT.pack(stream.granted) + _bounded(header))
        return self._last

    def accept(self, number: int, header: bytes) -> None:
        stream = self._streams.get(number)
        if stream is not None and not stream.is_accepted:
            stream.is_accepted = True
            self._emit(FrameKind.ACCEPT, number, CREDIT.pack(stream.granted) + _bounded(header))

    def refuse(self, number: int, header: bytes) -> None:
        if self._remove(number):
            self._emit(FrameKind.REFUSE, number, _bounded(header))

    def send(self, number: int, data: bytes) -> int:
        """Sends as much as the credit allows, one frame at most; returns how much that was."""
        stream = self._streams.get(number)
        if stream is None or stream.has_ended:
            return 0
        count = min(len(data), stream.credit, DATA_BYTES_MAX)
        if count:
            stream.credit -= count
            self._emit(FrameKind.DATA, number, data if count == len(data) else data[:count])
        return count

    def consumed(self, number: int, count: int) -> None:
        """The reader has taken so many bytes: the other end may send as many again. This is announced at half a
        window, since a frame for each read would double the frames."""
        stream = self._streams.get(number)
        if stream is None or stream.is_ended_by_peer:
            return
        stream.unreturned += count
        if stream.unreturned * 2 >= stream.window:
            stream.granted += stream.unreturned
            self._emit(FrameKind.CREDIT, number, CREDIT.pack(stream.unreturned))
            stream.unreturned = 0

    def end(self, number: int) -> None:
        stream = self._streams.get(number)
        if stream is not None and not stream.has_ended:
            stream.has_ended = True
            self._emit(FrameKind.END, number)
            self._remove_if_over(number, stream)

    def reset(self, number: int, header: bytes = b"") -> None:
        if self._remove(number):
            self._emit(FrameKind.RESET, number, _bounded(header))

    def ping(self) -> None:
        self._emit(FrameKind.PING)

    def leave(self, reason: str) -> None:
        self._emit(FrameKind.LEAVE, 0, _bounded(reason.encode()))

    def take_output(self) -> bytes:
        output, self._output, self.output_bytes = b"".join(self._output), [], 0
        return output

    def has(self, number: int) -> bool:
        return number in self._streams

    # --- receiving ---

    def receive(self, data: bytes) -> Iterator[Event]:
        """Raises TunnelProtocolError: then the connection is to be closed."""
        for frame in self._reader.feed(data):
            event = self._take(frame)
            if event is not None:
                yield event

    def _take(self, frame: Frame) -> Event | None:  # noqa: PLR0911 - one for each kind
        match frame.kind:
            case FrameKind.DATA:
                return self._received(frame)
            case FrameKind.CREDIT:
                return self._credited(frame)
            case FrameKind.OPEN:
                return self._opened(frame)
            case FrameKind.ACCEPT:
                return self._accepted(frame)
            case FrameKind.REFUSE:
                return StreamRefused(frame.stream, frame.payload) if self._remove(self._known(frame)) else None
            case FrameKind.END:
                return self._ended(frame)
            case FrameKind.RESET:
                return StreamReset(frame.stream, frame.payload) if self._remove(self._known(frame)) else None
            case FrameKind.HELLO:
                return PeerGreeted(frame.payload)
            case FrameKind.PING:
                self._emit(FrameKind.PONG)
            case FrameKind.PONG:
                pass
            case FrameKind.LEAVE:
                return PeerLeft(frame.payload.decode("utf-8", "replace"))
            case _:
                self.unknown_frames += 1
        return None

    def _opened(self, frame: Frame) -> Event | None:
        if self.is_opener:
            raise TunnelProtocolError("the other end may not open streams")
        if frame.stream != self._last + 1:
            raise TunnelProtocolError(f"stream {frame.stream} after stream {self._last}")
        self._last = frame.stream
        credit, header = _split(frame)
        if len(self._streams) >= self.streams_max:
            self._emit(FrameKind.REFUSE, frame.stream, b"")
            return None
        self._add(frame.stream).credit = credit
        return StreamOpened(frame.stream, header)

    def _accepted(self, frame: Frame) -> Event | None:
        stream = self._streams.get(self._known(frame))
        if stream is None:
            return None
        if stream.is_accepted or not self.is_opener:
            raise TunnelProtocolError(f"stream {frame.stream} was accepted already")
        stream.is_accepted = True
        stream.credit, header = _split(frame)
        return StreamAccepted(frame.stream, header)

    def _received(self, frame: Frame) -> Event | None:
        stream = self._streams.get(self._known(frame))
        if stream is None:
            return None  # It was reset here while these bytes were on their way.
        if stream.is_ended_by_peer or not stream.is_accepted:
            raise TunnelProtocolError(f"bytes on stream {frame.stream}, which is not open")
        stream.granted -= len(frame.payload)
        if stream.granted < 0:
            raise TunnelProtocolError(f"more bytes on stream {frame.stream} than its credit")
        return StreamData(frame.stream, frame.payload)

    def _credited(self, frame: Frame) -> Event | None:
        stream = self._streams.get(self._known(frame))
        if stream is None:
            return None
        stream.credit += _number(frame.payload)
        if stream.credit > CREDIT_MAX:
            raise TunnelProtocolError(f"too much credit on stream {frame.stream}")
        return StreamCredited(frame.stream)

    def _ended(self, frame: Frame) -> Event | None:
        stream = self._streams.get(self._known(frame))
        if stream is None:
            return None
        if stream.is_ended_by_peer or not stream.is_accepted:
            raise TunnelProtocolError(f"stream {frame.stream} ended twice, or before it was open")
        stream.is_ended_by_peer = True
        self._remove_if_over(frame.stream, stream)
        return StreamEnded(frame.stream)

    # --- streams ---

    def _known(self, frame: Frame) -> int:
        """Raises for a stream that was never opened; one that is over is fine, since frames cross."""
        if not 0 < frame.stream <= self._last:
            raise TunnelProtocolError(f"stream {frame.stream}, which was never opened")
        return frame.stream

    def _add(self, number: int) -> _Stream:
        left = max(0, BUDGET_BYTES - self._windows)
        window = max(WINDOW_BYTES_MIN, min(WINDOW_BYTES_MAX, left // 4))
        self._windows += window
        stream = self._streams[number] = _Stream(window, granted=window)
        return stream

    def _remove(self, number: int) -> bool:
        stream = self._streams.pop(number, None)
        if stream is not None:
            self._windows -= stream.window
        return stream is not None

    def _remove_if_over(self, number: int, stream: _Stream) -> None:
        if stream.has_ended and stream.is_ended_by_peer:
            self._remove(number)

    def _emit(self, kind: FrameKind, stream: int = 0, payload: bytes = b"") -> None:
        frame = encode_frame(kind, stream, payload)
        self._output.append(frame)
        self.output_bytes += len(frame)


def _bounded(header: bytes) -> bytes:
    assert len(header) <= HEADER_BYTES_MAX < PAYLOAD_BYTES_MAX, "callers bound what they say"
    return header


def _split(frame: Frame) -> tuple[int, bytes]:
    return _number(frame.payload[: CREDIT.size]), frame.payload[CREDIT.size :]


def _number(payload: bytes) -> int:
    if len(payload) != CREDIT.size:
        raise TunnelProtocolError("credit that cannot be read")
    found: int = CREDIT.unpack(payload)[0]
    if found > CREDIT_MAX:
        raise TunnelProtocolError("too much credit")
    return found
