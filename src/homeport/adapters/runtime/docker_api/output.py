"""What containers write, line by line: from the file that Podman writes it to, else from the engine's API.

There each piece comes with the time at which the engine recorded it. Both engines give several pieces one time, and
begin at a time when asked to resume; so a place in the output is a time and the number of pieces of that time before
it.
"""

import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import field
from datetime import UTC, datetime
from typing import Final

from homeport.adapters.runtime.docker_api.client import NOT_FOUND, EngineApi, EngineRefusal
from homeport.adapters.runtime.programs.output_file import HISTORY, follow_output_file
from homeport.adapters.runtime.programs.output_records import NS, LineJoiner, place_of
from homeport.core.logs.text import LINE_BYTES_MAX
from homeport.errors import WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.ports import OutputLine
from homeport.vocabulary import Code

_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")
_RESUME: Final = re.compile(r"(\d{1,20})#(\d{1,12})")


@dataclass(slots=True)
class OutputLines:
    """Puts pieces together to lines, and skips those that were read before."""

    resume: str = ""
    since_ns: int = 0
    """From where the output has to be read; 0 without a place to resume."""
    skip: int = 0
    """How many pieces of that time were read."""
    _at_ns: int = 0
    _count: int = 0
    _joiner: LineJoiner = field(default_factory=LineJoiner)
    _memo: tuple[bytes, int] = (b"", 0)

    def __post_init__(self) -> None:
        match = _RESUME.fullmatch(self.resume)
        if match is not None:
            self.since_ns, self.skip = int(match[1]), int(match[2])
        elif (place := place_of(self.resume)) is not None:
            # It was read from a file before. What Podman, which gives whole seconds, has of that second is left out.
            self.since_ns, self.skip = place.last_ns + 1, 0

    def feed(self, pieces: Iterable[tuple[bool, bytes]]) -> list[OutputLine]:
        found = []
        for is_error, piece in pieces:
            match = _TIME.match(piece)
            if match is None:
                at_ns, text = self._at_ns, piece
            else:
                at_ns, text = self._ns(match), piece[match.end() :]
            self._count = self._count + 1 if at_ns == self._at_ns else 1
            self._at_ns = at_ns
            if at_ns < self.since_ns or (at_ns == self.since_ns and self._count <= self.skip):
                continue
            is_whole = text.endswith(b"\n")
            joined = self._joiner.join(is_error, text[:-1] if is_whole else text, is_whole=is_whole)
            if joined is not None:
                found.append(self._output(is_error, *joined))
        return found

    def end(self) -> list[OutputLine]:
        """Lines without an end, when there is no more output."""
        return [self._output(*line) for line in self._joiner.rest()]

    def _output(self, is_error: bool, text: bytes, size: int) -> OutputLine:
        at = datetime.fromtimestamp(self._at_ns // 1_000_000 / 1000, UTC) if self._at_ns else None
        return OutputLine(
            text.rstrip(b"\r\n"),
            f"{self._at_ns}#{self._count}",
            at,
            is_error,
            size if size > LINE_BYTES_MAX else None,
        )

    def _ns(self, match: re.Match[bytes]) -> int:
        """Nanoseconds since 1970; lines of one second share the slow part."""
        head = match[1] + match[3]
        if head != self._memo[0]:
            seconds = datetime.fromisoformat(head.decode().replace("Z", "+00:00")).timestamp()
            self._memo = head, int(seconds)
        return self._memo[1] * NS + int((match[2] or b"0").ljust(9, b"0"))


async def follow_container(
    api: EngineApi, container: str, resume: str, *, component: str
) -> AsyncGenerator[Sequence[OutputLine], None]:
    """Ends when the container is gone."""
    try:
        inspected = await api.inspect(container)
        source = api.output_file(inspected)
        follow = _stream(api, container, resume, framed=not inspected["Config"].get("Tty"))
        if source is not None:
            before = OutputLines(resume)
            follow = follow_output_file(
                source,
                api.file_events,
                resume,
                since_ns=before.since_ns,
                skip=before.skip,
                is_ended=not inspected["State"].get("Running"),
            )
        async with aclosing(follow) as pieces:
            async for lines in pieces:
                yield lines
    except EngineRefusal as refusal:
        if refusal.status == NOT_FOUND:
            return
        message = f"The output of {component} cannot be read: {refusal.message}"
        raise WorkFailed(Code.INTERNAL, message, source=component) from refusal
    except OSError as error:
        message = f"The output of {component} cannot be read: {error.strerror or error}."
        raise WorkFailed(Code.INTERNAL, message, source=component) from error


async def _stream(
    api: EngineApi, container: str, resume: str, *, framed: bool
) -> AsyncGenerator[Sequence[OutputLine], None]:
    lines = OutputLines(resume)
    since = lines.since_ns // NS or int((datetime.now(UTC) - HISTORY).timestamp())
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
    if found := lines.end():
        yield found
