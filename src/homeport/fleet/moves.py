"""Tells whoever listens that the deployments repository has moved. Only the newest commit counts."""

from collections.abc import AsyncIterator

import anyio

from homeport.vocabulary import Commit


class Moves:
    def __init__(self) -> None:
        self._commit: Commit | None = None
        self._moved = anyio.Event()

    def tell(self, commit: Commit) -> None:
        if commit == self._commit:
            return
        self._commit = commit
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def watch(self) -> AsyncIterator[Commit]:
        """The present commit at once, then each newer one; those that came in between are passed over."""
        seen: Commit | None = None
        while True:
            moved = self._moved
            if self._commit is not None and self._commit != seen:
                seen = self._commit
                yield seen
                continue
            await moved.wait()
