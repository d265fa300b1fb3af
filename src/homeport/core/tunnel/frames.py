"""Frames of a tunnel: kind, stream and length, then the payload.

A reader passes over kinds it does not know, so that a later release can add some (ADR 0037).
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

from homeport.lazy_dataclass import dataclass


class FrameKind(IntEnum):
    HELLO = 0
    """The first frame of each end: its protocol version."""
    OPEN = 1
    """A new stream, and where it leads to; begins with the credit that the sender grants."""
    ACCEPT = 2
    """The stream is open; begins with the credit that the sender grants."""
    REFUSE = 3
    DATA = 4
    CREDIT = 5
    """So many more bytes may be sent on the stream."""
    END = 6
    """No more bytes follow from this end; the other may still send."""
    RESET = 7
    """The stream is over in both directions."""
    PING = 8
    PONG = 9
    LEAVE = 10
    """The sender opens and accepts no more streams; the open ones continue."""


HEADER: Final = Struct("!BII")
CREDIT: Final = Struct("!I")
DATA_BYTES_MAX: Final = 64 * 1024
"""Of one frame: small enough that a stream waits only shortly for its turn behind the others."""
PAYLOAD_BYTES_MAX: Final = 128 * 1024
CREDIT_MAX: Final = 2**31 - 1


class TunnelProtocolError(Exception):
    """The other end sent what no correct end sends: the connection is over."""


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    """A `FrameKind`, or a number that only a later release knows."""
    stream: int
    payload: bytes = b""


def encode_frame(kind: FrameKind, stream: int = 0, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, stream, len(payload)) + payload


class FrameReader:
    """Collects bytes until they make frames. Holds one incomplete frame at most."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Raises TunnelProtocolError for a frame that is too large."""
        pending = self._pending
        pending += data
        offset = 0
        try:
            while len(pending) - offset >= HEADER.size:
                kind, stream, length = HEADER.unpack_from(pending, offset)
                if length > PAYLOAD_BYTES_MAX:
                    raise TunnelProtocolError(f"a frame of {length} bytes")
                end = offset + HEADER.size + length
                if len(pending) < end:
                    break
                yield Frame(kind, stream, bytes(memoryview(pending)[offset + HEADER.size : end]))
                offset = end
        finally:
            del pending[:offset]
