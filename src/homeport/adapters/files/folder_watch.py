"""Detects when files of a folder have changed: by inotify where the kernel offers it, by looking from time to time
everywhere else, and also beside it, for file systems whose changes come from another machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from homeport.adapters.files import inotify
from homeport.log import get_log

log = get_log(__name__)

CHANGES: Final = inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.DELETE
READ_BYTES: Final = 64 * 1024


class FolderWatch:
    def __init__(self, folder: Path, *, poll_seconds: float, look_seconds: float) -> None:
        """`poll_seconds` is the interval of looks without inotify, `look_seconds` the one with it."""
        self._folder = folder
        self._poll_seconds = poll_seconds
        self._look_seconds = look_seconds
        self._file: int | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Changes are noticed from here on. The folder is made where it is missing."""
        self._file = self._opened()
        try:
            yield
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    async def wait(self) -> None:
        """Returns when something may have changed since the last call."""
        if self._file is None:
            await anyio.sleep(self._poll_seconds)
            return
        with anyio.move_on_after(self._look_seconds):
            await anyio.wait_readable(self._file)
        with suppress(BlockingIOError):
            while os.read(self._file, READ_BYTES):
                pass

    def _opened(self) -> int | None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return _inotify(self._folder)
        except (OSError, AttributeError) as error:
            log.info("folder is polled", folder=str(self._folder), why=str(error))
            return None


def _inotify(folder: Path) -> int:
    """A file that can be read when the folder has changed."""
    file = inotify.open_instance()
    try:
        inotify.add(file, folder, CHANGES)
    except OSError:
        os.close(file)
        raise
    return file
