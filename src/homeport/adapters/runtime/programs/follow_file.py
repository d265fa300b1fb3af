"""Follows the log file of a program, also when it is renamed to `<log>.1` because it is full.

A place in the output is the file's inode and the offset in it.
"""

import os
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.files.file_events import FileEvents
from homeport.core.logs.text import LINE_BYTES_MAX
from homeport.ports import OutputLine

TOGETHER_SECONDS: Final = 0.05
"""What is written within this time is read at once."""
BLOCK: Final = 256 * 1024
HISTORY_BYTES_MAX: Final = 1024 * 1024
"""How much is read of a file that was not followed before."""
_RESUME: Final = re.compile(r"(\d{1,20}):(\d{1,15})")


class FollowedFile:
    def __init__(self, path: Path, resume: str) -> None:
        self._paths = (path.with_name(path.name + ".1"), path)
        match = _RESUME.fullmatch(resume)
        self._inode, self._offset = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        self._head = b""
        """The beginning of a very long line."""
        self._size = 0
        """How much of it has been read."""

    def read(self) -> list[OutputLine]:
        """What has been written since the last time; empty at the end."""
        files = [(status.st_ino, status.st_size, path) for path in self._paths if (status := _status(path))]
        known = next((index for index, each in enumerate(files) if each[0] == self._inode), None)
        if known is None:
            if not files:
                return []
            self._inode, size, _ = files[-1]
            self._offset = max(0, size - HISTORY_BYTES_MAX)
            known = len(files) - 1
        inode, size, path = files[known]
        if self._offset >= size:
            if known + 1 == len(files):
                return []
            self._inode, self._offset, path = files[known + 1][0], 0, files[known + 1][2]
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                block = file.read(BLOCK)
        except OSError:
            return []
        is_old = known + 1 < len(files) and self._inode == inode
        return self._lines(block, is_last=is_old and self._offset + len(block) >= size)

    def _lines(self, block: bytes, *, is_last: bool) -> list[OutputLine]:
        found = []
        start = 0
        while (end := block.find(b"\n", start)) >= 0:
            self._offset += end + 1 - start
            found.append(self._output(block[start:end]))
            start = end + 1
        rest = block[start:]
        if rest and (is_last or len(rest) >= LINE_BYTES_MAX):
            self._offset += len(rest)
            if is_last:
                found.append(self._output(rest))
            else:
                self._head = self._head or rest[:LINE_BYTES_MAX]
                self._size += len(rest)
        return found

    def _output(self, text: bytes) -> OutputLine:
        size, self._size = self._size + len(text), 0
        head, self._head = self._head, b""
        kept = (head + text).rstrip(b"\r")[:LINE_BYTES_MAX]
        return OutputLine(kept, f"{self._inode}:{self._offset}", size=size if size > LINE_BYTES_MAX else None)


async def follow_file(path: Path, resume: str, events: FileEvents) -> AsyncGenerator[Sequence[OutputLine], None]:
    file = FollowedFile(path, resume)
    with events.watch(path) as watched:
        while True:
            if found := await run_sync(file.read):
                yield found
            else:
                await watched.wait()
                await anyio.sleep(TOGETHER_SECONDS)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
