"""Reads and follows the file with a container's output, across restarts of the container, rotation and removal.

The file is kept open: what was written before it was rotated or removed can still be read. Records that are missing
all the same are noticed, and the next line says why.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.files.file_events import FileEvents
from homeport.adapters.runtime.programs.output_records import (
    NS,
    TIME_LENGTH,
    OutputPosition,
    Record,
    RecordLines,
    RecordParser,
    place_of,
)
from homeport.ports import OutputLine

BLOCK: Final = 256 * 1024
"""Longer than any record: the monitor reads 8 KiB at a time."""
NEAR: Final = 64 * 1024
"""A time is looked for by halves down to so many bytes; the rest is read."""
HISTORY: Final = timedelta(hours=1)
"""How much of the output is read of a container that was not followed before."""
TOGETHER_SECONDS: Final = 0.05
"""What is written within this time is read at once."""
END_SECONDS_MAX: Final = 5.0
"""How long after the end of its monitor a container may seem to run."""
END_PAUSE_SECONDS: Final = 0.05
REPLACED: Final = "the engine began a new log file before the old one was read"
SHORTENED: Final = "the engine's log file was shortened"
UNREADABLE: Final = "a part of the engine's log file is not readable"


class OutputFile:
    """For one thread at a time."""

    def __init__(self, path: Path, place: OutputPosition | None = None) -> None:
        """Raises OSError where it cannot be read."""
        self._path = path
        self._parser = RecordParser()
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._header = b""
        self._offset = 0
        self._unread = 0
        """How many other files had the name, and were not opened."""
        self.first_ns = 0
        self._lost = ""
        self._is_next = False
        self.is_gone = False
        """Whether it was removed, and everything is read."""
        self._identify()
        if place is not None:
            if place.first_ns == self.first_ns and place.offset <= self._size():
                self._offset = place.offset
            else:
                self._restart(REPLACED)

    def close(self) -> None:
        os.close(self._file)

    def read(self) -> list[Record]:
        """What was written since the last time, a block at most; empty at the end."""
        if self._is_rewritten():
            self._restart(SHORTENED)
        if records := self._block():
            return records
        if self._is_current():
            return []
        # Nothing is written to the file any more; what was written since the look above is still to be read.
        if records := self._block():
            return records
        if self._open_next():
            return self.read()
        self.is_gone = True
        return []

    @property
    def offset(self) -> int:
        """Up to where it was read."""
        return self._offset

    def take_breaks(self, replaced: int) -> tuple[bool, str]:
        """Whether the records that were just read are the first of another file, and why some are missing before
        them, since the last call. `replaced` is how often another file got the name up to now: where that was more
        often than one was opened, files were never read."""
        self._unread += replaced
        if self._unread > 0 and (self.is_gone or self._is_current()):
            self._unread, self._lost = 0, REPLACED
        breaks = self._is_next, self._lost
        self._is_next, self._lost = False, ""
        return breaks

    def seek(self, since_ns: int) -> None:
        """Leaves out records of before this time, but for a few."""
        low, high = 0, self._size()
        while high - low > NEAR:
            middle = (low + high) // 2
            start, ns = self._record_after(middle)
            if ns is None or start >= high:
                high = middle
            elif ns < since_ns:
                low = start
            else:
                high = middle
        self._offset = low

    # --- inside ------------------------------------------------------------------------------------------------

    def _block(self) -> list[Record]:
        block = os.pread(self._file, BLOCK, self._offset)
        end = block.rfind(b"\n") + 1
        if not end:
            if len(block) == BLOCK:
                self._offset, self._lost = self._offset + BLOCK, UNREADABLE
                return self._block()
            return []
        records = self._parser.parse(block[:end], self._offset)
        self._offset += end
        if not self._header:
            self._identify()
        return records

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def _identify(self) -> None:
        header = os.pread(self._file, TIME_LENGTH + 10, 0)
        if len(header) == TIME_LENGTH + 10:
            self._header = header
            self.first_ns = RecordParser().parse(header.replace(b"\n", b" ") + b"\n", 0)[0].ns

    def _is_rewritten(self) -> bool:
        """Whether the same file has other records now."""
        if self._size() < self._offset:
            return True
        return bool(self._header) and os.pread(self._file, len(self._header), 0) != self._header

    def _restart(self, why: str) -> None:
        self._offset, self._header, self.first_ns, self._lost, self._is_next = 0, b"", 0, why, True
        self._identify()

    def _is_current(self) -> bool:
        """Whether the file that has the name now is the one that is read."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def _open_next(self) -> bool:
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        os.close(self._file)
        self._file, self._offset, self._header, self.first_ns, self._is_next = file, 0, b"", 0, True
        self._unread -= 1
        self._identify()
        return True

    def _record_after(self, offset: int) -> tuple[int, int | None]:
        """Where the first record that begins after an offset does, and its time."""
        block = os.pread(self._file, NEAR, offset)
        start = block.find(b"\n") + 1
        end = block.find(b"\n", start) + 1
        if not start or not end:
            return offset, None
        return offset + start, RecordParser().parse(block[start:end], 0)[0].ns


async def follow_output_file(
    path: Path,
    events: FileEvents,
    resume: str,
    *,
    since_ns: int = 0,
    skip: int = 0,
    is_ended: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncGenerator[Sequence[OutputLine], None]:
    """Lines after `resume`; without such a place, those from `since_ns` on but for the first `skip` records, or of
    the last hour. `is_ended` is whether the container has ended; it may be started again. Ends when the file was
    removed. Raises OSError where it cannot be read."""
    place = place_of(resume)
    begin_ns = 0 if place is not None else since_ns or int((now() - HISTORY).timestamp()) * NS
    lines = RecordLines(place.skip if place is not None else 0)
    with events.watch(path) as watched, closing(await run_sync(OutputFile, path, place)) as file:
        if begin_ns:
            await run_sync(file.seek, begin_ns)
        while not file.is_gone:
            records: Sequence[Record] = await run_sync(file.read)
            is_next, lost = file.take_breaks(watched.take_replaced())
            if begin_ns and records:
                records = [each for each in records if each.ns >= begin_ns]
                records, skip = records[skip:], max(0, skip - len(records))
                begin_ns = 0 if records else begin_ns
            if is_next:
                lines.next_file()
            if lost:
                lines.gap(lost)
            if records:
                if found := lines.feed(records, first_ns=file.first_ns):
                    yield found
            else:
                if (is_ended or file.is_gone) and (found := lines.end(first_ns=file.first_ns, offset=file.offset)):
                    yield found
                if not file.is_gone:
                    await watched.wait()
                    await anyio.sleep(TOGETHER_SECONDS)
                    # Its monitor closes the file when the container has ended, and when it begins another file.
                    is_ended = watched.take_closed()


async def read_output_file(
    path: Path, events: FileEvents, is_running: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    """Everything that a container has printed, then what it prints, until it ends; both streams as one. Raises
    OSError where it cannot be read."""
    with events.watch(path) as watched, closing(await run_sync(OutputFile, path)) as file:
        is_last, closed_at = not await is_running(), -END_SECONDS_MAX
        while not file.is_gone:
            records = await run_sync(file.read)
            if lost := file.take_breaks(watched.take_replaced())[1]:
                yield f"\n[Output is missing here: {lost}.]\n".encode()
            if records:
                yield b"".join(each.text + b"\n" if each.is_whole else each.text for each in records)
            elif is_last:
                return
            else:
                # The monitor closes the file when it ends, after everything is in it, and when it begins another.
                is_ending = anyio.current_time() < closed_at + END_SECONDS_MAX
                with anyio.move_on_after(END_PAUSE_SECONDS if is_ending else None):
                    await watched.wait()
                if watched.take_closed():
                    closed_at = anyio.current_time()
                    is_ending = True
                if is_ending or not watched.has_events:
                    is_last = not await is_running()
