"""Notices that a remote may have moved.

A local repository is looked at twenty times a second, a few `stat` calls each, so that a person's push takes
effect at once. Any other is asked at its poll, spread a little so that a thousand sites do not ask together.
Whoever knows more rings the bell.
"""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

_CHANCE = random.Random()
LOOK_SECONDS = 0.05
POLL_SPREAD = 0.1

Mark = tuple[tuple[int, int, int] | None, ...]


class Watch:
    """`folder` is the remote where it is a local path. Every watcher hears every ring; rings add up to one."""

    def __init__(self, folder: Path | None, reference: str, *, poll_seconds: float) -> None:
        self._folder = folder
        self._reference = reference
        self._poll_seconds = poll_seconds
        self._bell = anyio.Event()

    def ring(self) -> None:
        bell, self._bell = self._bell, anyio.Event()
        bell.set()

    async def moves(self) -> AsyncIterator[None]:
        """Begins with one at once, since nobody knows what happened before; what happens while the caller is
        busy is told when it comes back."""
        while True:
            bell, mark = self._bell, self._mark()
            yield
            await self._wait(bell, mark)

    async def _wait(self, bell: anyio.Event, mark: Mark) -> None:
        poll_seconds = self._poll_seconds * _CHANCE.uniform(1 - POLL_SPREAD, 1 + POLL_SPREAD)
        with anyio.move_on_after(poll_seconds):
            while self._folder is not None and not bell.is_set() and self._mark() == mark:
                with anyio.move_on_after(LOOK_SECONDS):
                    await bell.wait()
            if self._folder is None:
                await bell.wait()

    def _mark(self) -> Mark:
        """Changes when the ref does: git renames a new file over the old, loose or packed."""
        if self._folder is None:
            return ()
        folder = next((place for place in _places(self._folder) if (place / "HEAD").exists()), self._folder)
        return _look(folder / self._reference), _look(folder / "packed-refs")


def _places(folder: Path) -> tuple[Path, ...]:
    """Where git itself looks for the repository of a path."""
    return folder / ".git", folder, folder.with_name(f"{folder.name}.git")


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
