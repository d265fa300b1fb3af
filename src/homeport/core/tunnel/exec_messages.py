"""The messages of a command's stream: what it reads, what it writes, the size of its terminal, how it ended.

Each is a channel, a length and as many bytes. Roles between the command line and the node pass them on unread.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

MESSAGE_BYTES_MAX: Final = 64 * 1024
_HEADER: Final = Struct("!BI")


class Channel(IntEnum):
    INPUT = 0
    """Empty: the end of the input."""
    OUTPUT = 1
    ERRORS = 2
    EXIT = 3
    """JSON: `code`."""
    RESIZE = 4
    """JSON: `columns` and `rows`."""


@dataclass(frozen=True, slots=True)
class ExecMessage:
    channel: int
    """A `Channel`, or a number that only a later release knows: it is passed over."""
    content: bytes


def encode_message(channel: Channel, content: bytes = b"") -> bytes:
    return _HEADER.pack(channel, len(content)) + content


class MessageReader:
    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[ExecMessage]:
        """Raises InvalidInput for a message that is too large."""
        self._pending += data
        while len(self._pending) >= _HEADER.size:
            channel, length = _HEADER.unpack_from(self._pending)
            if length > MESSAGE_BYTES_MAX:
                raise InvalidInput(f"A message of {length} bytes on the stream of a command.")
            end = _HEADER.size + length
            if len(self._pending) < end:
                return
            content = bytes(self._pending[_HEADER.size : end])
            del self._pending[:end]
            yield ExecMessage(channel, content)
