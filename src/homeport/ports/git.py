"""The deployments repository."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from homeport.vocabulary import Commit


@dataclass(frozen=True, slots=True)
class TreeFile:
    path: str
    content: bytes
    is_regular: bool = True
    """False for a link or a submodule: it is there, so it was not removed, but what it leads to is not read."""


@dataclass(frozen=True, slots=True)
class Change:
    """Write `content` at `path`; None removes the file."""

    path: str
    content: bytes | None


class GitSource(Protocol):
    """One remote repository and branch, through a bare clone of our own."""

    url: str

    async def fetch(self) -> Commit | None:
        """The branch's newest commit, now present here; None when the remote has no such branch yet.

        Raises GitUnavailable.
        """
        ...

    async def head(self) -> Commit | None:
        """The newest commit already here."""
        ...

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        """Files below `folder`, recursively, sorted by path. Links are named and not followed; a file above
        `size_max` has only its first `size_max + 1` bytes, so that the reader can refuse it by name."""
        ...

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        """Paths added, changed or removed below `folder` between two commits."""
        ...

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool: ...

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        """The commit that last touched each path below `folder` which changed between the two, along first parents.

        Bounded: a path whose commit lies too far back is left out. Without `before` only `after` itself is looked at.
        """
        ...

    async def commit(
        self, decide: Callable[[Commit | None], Awaitable[Sequence[Change]]], *, message: str, author: str
    ) -> Commit | None:
        """Commits on top of the remote's newest commit and pushes; a lost race asks `decide` again.

        `decide` gets the commit it will build on. No changes, no commit: returns None. Raises GitUnavailable
        with the remote's own words when it cannot be reached or refuses; nothing is left half-done.
        """
        ...

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        """Message, author and time of a commit."""
        ...

    def watch(self) -> AsyncIterator[None]:
        """Yields whenever the remote may have moved: at once for a local path, else at each poll or nudge."""
        ...

    def nudge(self) -> None:
        """Somebody says the remote has moved: a webhook, or central."""
        ...
