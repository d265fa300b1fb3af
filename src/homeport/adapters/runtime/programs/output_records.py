"""The records that Podman's monitor writes of a container's output: `TIME stdout|stderr F|P TEXT`, one in each line
of a file. P is a part of a line that continues in the next record of the same stream, F is its end.

A place in the output outlives the process: the file, known by the time of its first record, and the offset in it.
Where a line of the other stream is incomplete at that moment, it is the offset of that line, and how many lines have
ended since.
"""

import re
from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from homeport.core.logs.text import LINE_BYTES_MAX
from homeport.lazy_dataclass import dataclass
from homeport.ports import OutputLine

NS: Final = 1_000_000_000
TIME_LENGTH: Final = 35
_PLACE: Final = re.compile(r"file:(\d{1,20}):(\d{1,18}):(\d{1,12}):(\d{1,20})")
_RECORD: Final = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?: (.*))?", re.DOTALL
)
_STREAMS: Final = {b" stdout F ": (False, True), b" stdout P ": (False, False)} | {
    b" stderr F ": (True, True),
    b" stderr P ": (True, False),
}


class Record(NamedTuple):
    start: int
    end: int
    """Its offsets in the file."""
    ns: int
    """When it was written, since 1970."""
    is_error: bool
    is_whole: bool
    """Whether it ends a line."""
    text: bytes


@dataclass(frozen=True, slots=True)
class OutputPosition:
    first_ns: int
    """The time of the first record of the file."""
    offset: int
    skip: int
    """How many lines that end after the offset were read before."""
    last_ns: int
    """When the last line was written."""

    def __str__(self) -> str:
        return f"file:{self.first_ns}:{self.offset}:{self.skip}:{self.last_ns}"


def place_of(resume: str) -> OutputPosition | None:
    match = _PLACE.fullmatch(resume)
    return None if match is None else OutputPosition(*(int(each) for each in match.groups()))


class RecordParser:
    """Keeps the slow part of a time, which all records of a second share."""

    def __init__(self) -> None:
        self._head = b""
        self._seconds_ns = 0
        self._last_ns = 0

    def parse(self, block: bytes, offset: int) -> list[Record]:
        """`block` begins with a record, ends with a line break, and is at `offset` of the file."""
        found = []
        for line in block[:-1].split(b"\n"):
            kind = _STREAMS.get(line[TIME_LENGTH : TIME_LENGTH + 10])
            start, offset = offset, offset + len(line) + 1
            if kind is not None and line[19:20] == b".":
                found.append(Record(start, offset, self._ns(line), *kind, line[TIME_LENGTH + 10 :]))
            else:
                found.append(self._unusual(line, start, offset))
        return found

    def _ns(self, line: bytes) -> int:
        head = line[:19] + line[29:TIME_LENGTH]
        try:
            if head != self._head:
                self._seconds_ns = int(datetime.fromisoformat(head.decode()).timestamp()) * NS
                self._head = head
            self._last_ns = self._seconds_ns + int(line[20:29])
        except ValueError:
            self._head = b""
        return self._last_ns

    def _unusual(self, line: bytes, start: int, end: int) -> Record:
        """A record of another form, such as a time with fewer digits. Anything that is not a record is text."""
        match = _RECORD.fullmatch(line)
        if match is None:
            return Record(start, end, self._last_ns, False, True, line)
        digits, zone = (match[2] or b"").ljust(9, b"0"), match[3].replace(b"Z", b"+00:00")
        return Record(
            start,
            end,
            self._ns(match[1] + b"." + digits + zone),
            match[4] == b"stderr",
            match[5] == b"F",
            match[6] or b"",
        )


@dataclass(slots=True)
class LineJoiner:
    """Puts the parts of lines together, for both streams; keeps no more of a line than `LINE_BYTES_MAX`."""

    _kept: dict[bool, bytearray] = field(default_factory=dict)
    _sizes: dict[bool, int] = field(default_factory=dict)

    def join(self, is_error: bool, text: bytes, *, is_whole: bool) -> tuple[bytes, int] | None:
        """The line and its true size, when it is whole."""
        kept = self._kept.get(is_error)
        if is_whole and kept is None:
            return text[:LINE_BYTES_MAX], len(text)
        kept = self._kept.setdefault(is_error, bytearray())
        size = self._sizes[is_error] = self._sizes.get(is_error, 0) + len(text)
        kept += text[: max(0, LINE_BYTES_MAX - len(kept))]
        if not is_whole:
            return None
        del self._kept[is_error], self._sizes[is_error]
        return bytes(kept), size

    def rest(self) -> list[tuple[bool, bytes, int]]:
        """Lines that were never ended, each with whether it is of stderr."""
        found = [(is_error, bytes(kept), self._sizes[is_error]) for is_error, kept in self._kept.items()]
        self._kept.clear()
        self._sizes.clear()
        return found


@dataclass(slots=True)
class RecordLines:
    """Lines of records, each with the place after it."""

    skip: int = 0
    """How many of the first lines were read before."""
    lost: str = ""
    """Why lines before the next one are missing."""
    _last_ns: int = 0
    _joiner: LineJoiner = field(default_factory=LineJoiner)
    _begun: dict[bool, tuple[int, int]] = field(default_factory=dict)
    """By stream, of an incomplete line: where it begins, and how many lines of the other stream ended since."""

    def feed(self, records: Iterable[Record], *, first_ns: int) -> list[OutputLine]:
        found: list[OutputLine] = []
        for start, end, ns, is_error, is_whole, text in records:
            joined = self._joiner.join(is_error, text, is_whole=is_whole)
            if joined is None:
                self._last_ns = ns
                self._begun.setdefault(is_error, (start, 0))
                continue
            self._begun.pop(is_error, None)
            offset, count = end, 0
            if (other := self._begun.get(not is_error)) is not None:
                offset, count = other[0], other[1] + 1
                self._begun[not is_error] = offset, count
            self._last_ns = ns
            if self.skip:
                self.skip -= 1
                continue
            found.append(self._output(is_error, *joined, f"file:{first_ns}:{offset}:{count}:{ns}"))
        return found

    def end(self, *, first_ns: int, offset: int) -> list[OutputLine]:
        """Lines without an end, and a loss that no line came after: the container has ended, and the file
        continues, if at all, with new lines."""
        self._begun.clear()
        rest = self._joiner.rest()
        resume = f"file:{first_ns}:{offset}:0:{self._last_ns}"
        found = [self._output(*line, resume) for line in rest[self.skip :]]
        if self.lost:
            found.append(OutputLine(None, resume, self._at(), lost=self.lost))
            self.lost = ""
        return found

    def _output(self, is_error: bool, line: bytes, size: int, resume: str) -> OutputLine:
        cut = size if size > LINE_BYTES_MAX else None
        lost, self.lost = self.lost, ""
        return OutputLine(line.rstrip(b"\r"), resume, self._at(), is_error, cut, lost)

    def _at(self) -> datetime | None:
        ns = self._last_ns
        return datetime.fromtimestamp(ns // 1_000_000 / 1000, UTC) if ns else None

    def next_file(self) -> None:
        """Another file begins, where incomplete lines continue."""
        self._begun = dict.fromkeys(self._begun, (0, 0))
        self.skip = 0

    def gap(self, why: str) -> None:
        """Records are missing: incomplete lines have no end."""
        self.lost = why
        self._joiner.rest()
        self._begun.clear()
