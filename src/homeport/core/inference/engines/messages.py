"""Cuts what an engine streams into whole messages, wherever its chunks are cut. Pure."""

from typing import Final

EVENTS: Final = b"\n\n"
"""What ends an event of Server-Sent Events."""
LINES: Final = b"\n"


class MessageBuffer:
    """Line ends become `\\n`: an event stream may have `\\r\\n` and `\\r` too. What is incomplete waits for the next
    chunk, and costs nothing until its end is there: an engine may send it byte by byte."""

    __slots__ = ("_after_cr", "_end", "_overlap", "_parts", "_separator", "size")

    def __init__(self, separator: bytes = EVENTS) -> None:
        self._separator = separator
        self._overlap = len(separator) - 1
        self._parts: list[bytes] = []
        self._end = b""
        """Of what waits, as much as may be the beginning of a separator."""
        self._after_cr = False
        self.size = 0
        """Bytes that wait."""

    def feed(self, chunk: bytes) -> bytes:
        """The messages that are whole now, each with its separator."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_newlines(chunk)
        if not self._parts and chunk.endswith(self._separator):
            return chunk
        cut = (self._end + chunk).rfind(self._separator)
        if cut < 0:
            self._keep(chunk)
            return b""
        cut += len(self._separator) - len(self._end)
        whole = b"".join([*self._parts, chunk[:cut]])
        self._parts, self._end, self.size = [], b"", 0
        self._keep(chunk[cut:])
        return whole

    def rest(self) -> bytes:
        """What waits: the last message of an engine that does not end it."""
        return b"".join(self._parts)

    def _keep(self, chunk: bytes) -> None:
        if chunk:
            self._parts.append(chunk)
            self.size += len(chunk)
            self._end = (self._end + chunk)[-self._overlap :] if self._overlap else b""

    def _with_newlines(self, chunk: bytes) -> bytes:
        if chunk and self._after_cr:
            # Its \r was passed on as a whole line end already.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def data_of(event: bytes, *, fields: tuple[bytes, ...] = (b"data:",)) -> bytes:
    """The data of an event; its lines, where it has several, are put together."""
    lines = (line.partition(b":")[2] for line in event.split(b"\n") if line.startswith(fields))
    return b"\n".join(line.strip() for line in lines)
