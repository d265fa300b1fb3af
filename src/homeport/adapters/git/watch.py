"""Detects that a remote may have changed.

For a local repository inotify reports changed refs, so that a push takes effect at once and an idle watch costs
nothing; without inotify, a few `stat` calls are made twenty times a second. Any other repository is polled, with
jitter so that a thousand sites do not poll together. Webhooks and central trigger a poll through the bell.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio

from homeport.adapters.git.inotify import changes_in

_CHANCE = random.Random()
LOOK_SECONDS = 0.05
POLL_SPREAD = 0.1

Mark = tuple[tuple[int, int, int] | None, ...]


class RepositoryWatch:
    """`folder` is the remote where it is a local path. Every watcher is woken by every ring; several rings count as
    one."""

    def __init__(self, folder: Path | None, reference: str, *, poll_seconds: float) -> None:
        self._folder = folder
        self._reference = reference
        self._poll_seconds = poll_seconds
        self._bell = anyio.Event()

    def ring(self) -> None:
        bell, self._bell = self._bell, anyio.Event()
        bell.set()

    async def moves(self) -> AsyncIterator[None]:
        """Yields once at the start, because earlier changes are unknown; changes while the caller is busy are
        reported when it comes back."""
        while True:
            bell, mark = self._bell, self._mark()
            yield
            await self._wait(bell, mark)

    async def _wait(self, bell: anyio.Event, mark: Mark) -> None:
        poll_seconds = self._poll_seconds * _CHANCE.uniform(1 - POLL_SPREAD, 1 + POLL_SPREAD)
        with anyio.move_on_after(poll_seconds):
            while not bell.is_set() and self._mark() == mark:
                await self._stir(bell, mark)

    async def _stir(self, bell: anyio.Event, mark: Mark) -> None:
        """Returns when the bell rings or the refs may have changed; it may return at once, or without a change."""
        if self._folder is None:
            await bell.wait()
            return
        repository = _repository(self._folder)
        with changes_in([repository, (repository / self._reference).parent]) as descriptor:
            if descriptor is None:
                with anyio.move_on_after(LOOK_SECONDS):
                    await bell.wait()
            elif self._mark() == mark:  # A change before the watch was set up is not reported by it.
                await _first(bell.wait, partial(anyio.wait_readable, descriptor))

    def _mark(self) -> Mark:
        """Changes when the ref does: git renames a new file over the old, loose or packed."""
        if self._folder is None:
            return ()
        folder = _repository(self._folder)
        return _look(folder / self._reference), _look(folder / "packed-refs")


async def _first(*works: Callable[[], Awaitable[object]]) -> None:
    """Returns when the first of them does."""
    async with anyio.create_task_group() as tasks:

        async def end_with(work: Callable[[], Awaitable[object]]) -> None:
            await work()
            tasks.cancel_scope.cancel()

        for work in works:
            tasks.start_soon(end_with, work)


def _repository(folder: Path) -> Path:
    return next((place for place in _places(folder) if (place / "HEAD").exists()), folder)


def _places(folder: Path) -> tuple[Path, ...]:
    """The paths where git itself looks for the repository of a path."""
    return folder / ".git", folder, folder.with_name(f"{folder.name}.git")


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
