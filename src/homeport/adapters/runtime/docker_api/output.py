"""What containers write, line by line, from the API of Docker and Podman.

Each piece comes with the time at which the engine recorded it. Both engines give several pieces one time, and begin
at a time when asked to resume; so a place in the output is a time and the number of pieces of that time before it.
"""

import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from homeport.adapters.runtime.docker_api.client import EngineApi, Refusal
from homeport.core.logs.text import LINE_BYTES_MAX
from homeport.errors import WorkFailed
from homeport.ports import Output
from homeport.vocabulary import Code

HISTORY: Final = timedelta(hours=1)
"""How much of the output is read of a container that was not followed before."""
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")
_RESUME: Final = re.compile(r"(\d{1,20})#(\d{1,12})")


@dataclass(slots=True)
class OutputLines:
    """Puts pieces together to lines, and skips those that were read before."""

    resume: str = ""
    _skip_ns: int = 0
    _skip: int = 0
    """How many pieces of that time were read."""
    _at_ns: int = 0
    _count: int = 0
    _partial: dict[bool, bytearray] = field(default_factory=dict)
    """By stream: a line whose end has not come yet."""
    _sizes: dict[bool, int] = field(default_factory=dict)
    _memo: tuple[bytes, int] = (b"", 0)

    def __post_init__(self) -> None:
        match = _RESUME.fullmatch(self.resume)
        if match is not None:
            self._skip_ns, self._skip = int(match[1]), int(match[2])

    @property
    def since(self) -> int:
        """Seconds since 1970 from which the engine has to be asked; 0 without a place to resume."""
        return self._skip_ns // 1_000_000_000

    def feed(self, pieces: Iterable[tuple[bool, bytes]]) -> list[Output]:
        found = []
        for is_error, piece in pieces:
            match = _TIME.match(piece)
            if match is None:
                at_ns, text = self._at_ns, piece
            else:
                at_ns, text = self._ns(match), piece[match.end() :]
            self._count = self._count + 1 if at_ns == self._at_ns else 1
            self._at_ns = at_ns
            if at_ns < self._skip_ns or (at_ns == self._skip_ns and self._count <= self._skip):
                continue
            output = self._join(is_error, text)
            if output is not None:
                found.append(output)
        return found

    def _join(self, is_error: bool, text: bytes) -> Output | None:
        is_whole = text.endswith(b"\n")
        pending = self._partial.get(is_error)
        if is_whole and pending is None:
            return self._output(is_error, text[:-1], len(text) - 1)
        pending = self._partial.setdefault(is_error, bytearray())
        size = self._sizes[is_error] = self._sizes.get(is_error, 0) + len(text) - is_whole
        pending += text[: max(0, LINE_BYTES_MAX - len(pending))]
        if not is_whole:
            return None
        del self._partial[is_error], self._sizes[is_error]
        return self._output(is_error, bytes(pending), size)

    def _output(self, is_error: bool, text: bytes, size: int) -> Output:
        at = datetime.fromtimestamp(self._at_ns // 1_000_000 / 1000, UTC) if self._at_ns else None
        kept = text.rstrip(b"\r\n")[:LINE_BYTES_MAX]
        return Output(kept, f"{self._at_ns}#{self._count}", at, is_error, size if size > LINE_BYTES_MAX else None)

    def _ns(self, match: re.Match[bytes]) -> int:
        """Nanoseconds since 1970; lines of one second share the slow part."""
        head = match[1] + match[3]
        if head != self._memo[0]:
            seconds = datetime.fromisoformat(head.decode().replace("Z", "+00:00")).timestamp()
            self._memo = head, int(seconds)
        return self._memo[1] * 1_000_000_000 + int((match[2] or b"0").ljust(9, b"0"))


async def follow_container(
    api: EngineApi, container: str, resume: str, *, component: str
) -> AsyncGenerator[Sequence[Output], None]:
    try:
        framed = not (await api.inspect(container))["Config"].get("Tty")
        lines = OutputLines(resume)
        since = lines.since or int((datetime.now(UTC) - HISTORY).timestamp())
        pending = b""
        async for arrived in api.follow(container, since=since, framed=framed):
            pieces = arrived
            if not framed:  # A terminal's output has no frames: a piece ends with a line.
                pending += b"".join(piece for _, piece in arrived)
                *whole, pending = pending.split(b"\n")
                pending = pending[-LINE_BYTES_MAX:]
                pieces = [(False, line + b"\n") for line in whole]
            if found := lines.feed(pieces):
                yield found
    except Refusal as refusal:
        message = f"The output of {component} cannot be read: {refusal.message}"
        raise WorkFailed(Code.INTERNAL, message, source=component) from refusal
