"""Detects when a file is written, replaced or removed: one inotify instance for all files, since a user has few.

Costs nothing while nothing happens. Where the kernel has no watch left, a waiter looks from time to time.
"""

import asyncio
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from homeport.adapters.files import inotify
from homeport.log import get_log

log = get_log(__name__)

POLL_SECONDS: Final = 0.5
"""Between looks without inotify."""
TOGETHER_SECONDS: Final = 0.02
"""After it has reported events, the kernel keeps those that follow for so long, several of one kind as one: a program
may write thousands of lines a second."""
LOOK_SECONDS: Final = 60.0
"""Between looks beside it, for a file system that reports nothing."""
READ_BYTES: Final = 64 * 1024
_HEADER: Final = struct.Struct("iIII")
_MASK: Final = (
    inotify.MODIFY | inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE | inotify.DELETE_SELF
)
_REPLACES: Final = inotify.MOVED_TO | inotify.CREATE


class Watched:
    """One file, for one waiter."""

    def __init__(self, name: bytes, read_events: Callable[[], None] | None) -> None:
        self.name = name
        self._read_events = read_events
        self._changed = anyio.Event()
        self._replaced = 0
        self._is_closed = False

    @property
    def has_events(self) -> bool:
        return self._read_events is not None

    def take_replaced(self) -> int:
        """How often another file got the name since the last call: everything up to now, where there are events."""
        if self._read_events is not None:
            self._read_events()
        count, self._replaced = self._replaced, 0
        return count

    def take_closed(self) -> bool:
        """Whether a writer has closed it since the last call."""
        is_closed, self._is_closed = self._is_closed, False
        return is_closed

    async def wait(self) -> None:
        """Returns when the file may have changed since the last call."""
        with anyio.move_on_after(LOOK_SECONDS if self.has_events else POLL_SECONDS):
            await self._changed.wait()
        self._changed = anyio.Event()

    def happened(self, mask: int) -> None:
        if mask & _REPLACES:
            self._replaced += 1
        if mask & inotify.CLOSE_WRITE:
            self._is_closed = True
        self._changed.set()


class FileEvents:
    def __init__(self) -> None:
        self._file: int | None = None
        self._watched: dict[int, list[Watched]] = {}
        self._paused: asyncio.TimerHandle | None = None

    @contextmanager
    def watch(self, path: Path) -> Iterator[Watched]:
        """Changes of the file are noticed from here on, also those of its name."""
        number = self._added(path.parent)
        watched = Watched(os.fsencode(path.name), None if number is None else self._read)
        if number is None:
            yield watched
            return
        self._watched.setdefault(number, []).append(watched)
        try:
            yield watched
        finally:
            self._remove(number, watched)

    def _added(self, folder: Path) -> int | None:
        try:
            if self._file is None:
                self._file = inotify.open_instance()
                self._listen()
            return inotify.add(self._file, folder, _MASK)
        except (OSError, AttributeError) as error:
            log.info("folder is polled", folder=str(folder), why=str(error))
            self._close_unused()
            return None

    def _remove(self, number: int, watched: Watched) -> None:
        waiting = self._watched.get(number, [])
        if watched in waiting:
            waiting.remove(watched)
        if not waiting and self._watched.pop(number, None) is not None and self._file is not None:
            inotify.remove(self._file, number)
        self._close_unused()

    def _close_unused(self) -> None:
        if self._file is not None and not self._watched:
            asyncio.get_running_loop().remove_reader(self._file)
            if self._paused is not None:
                self._paused.cancel()
            os.close(self._file)
            self._file = None

    def _listen(self) -> None:
        assert self._file is not None
        asyncio.get_running_loop().add_reader(self._file, self._read_and_pause)

    def _read_and_pause(self) -> None:
        assert self._file is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._file)
        self._paused = loop.call_later(TOGETHER_SECONDS, self._listen)
        self._read()

    def _read(self) -> None:
        assert self._file is not None
        with suppress(BlockingIOError):
            while content := os.read(self._file, READ_BYTES):
                self._dispatch(content)

    def _dispatch(self, content: bytes) -> None:
        at = 0
        while at < len(content):
            number, mask, _, length = _HEADER.unpack_from(content, at)
            name = content[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
            at += _HEADER.size + length
            if mask & inotify.OVERFLOW:
                for watched in (each for some in self._watched.values() for each in some):
                    watched.happened(0)
            for watched in self._watched.get(number, ()):
                if not name or watched.name == name:
                    watched.happened(mask)
