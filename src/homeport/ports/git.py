"""The deployments repository."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit


@dataclass(frozen=True, slots=True)
class TreeFile:
    path: str
    content: bytes
    is_regular: bool = True
    """False for a link or a submodule: it exists, so it was not removed, but its target is not read."""


@dataclass(frozen=True, slots=True)
class Change:
    """Write `content` at `path`; None removes the file."""

    path: str
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The changes and message of one commit. Without changes there is no commit."""

    changes: Sequence[Change]
    message: str = ""


Decide = Callable[[Commit | None], Awaitable[Proposal]]
"""From the parent commit to the changes on top of it. It may raise: then nothing is pushed."""


class GitSource(Protocol):
    """One remote repository and branch, through our own bare clone."""

    url: str

    async def fetch(self) -> Commit | None:
        """The branch's newest commit, now in our clone; None when the remote has no such branch yet.

        Raises GitUnavailable.
        """
        ...

    async def head(self) -> Commit | None:
        """The newest commit in our clone."""
        ...

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        """Files below `folder`, recursively, sorted by path. Links are listed and not followed; a file above
        `size_max` has only its first `size_max + 1` bytes, so that the reader can refuse it by name."""
        ...

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        """Paths added, changed or removed below `folder` between two commits."""
        ...

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool: ...

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        """The commit that last touched each path below `folder` which changed between the two, along first parents.

        Bounded: a path whose commit is too far back is left out. Without `before` only `after` itself is considered.
        """
        ...

    async def contents(self, commit: Commit, path: str, *, size_max: int) -> Sequence[bytes]:
        """The contents of a file at a commit and before, newest first, along first parents. Bounded: what is too far
        back, or larger than `size_max`, is left out."""
        ...

    async def before_changes(
        self, commit: Commit, folder: str, paths: Collection[str]
    ) -> Mapping[str, Sequence[Commit]]:
        """For each of these paths below `folder`, the commits right before one that changed or removed it, newest
        first, along first parents. Bounded: what is too far back is left out."""
        ...

    async def commit(self, decide: Decide, *, author: str) -> Commit | None:
        """Commits on top of the remote's newest commit and pushes; after a lost race `decide` is called again.

        `decide` gets the parent commit. Without changes there is no commit: returns None. Raises GitUnavailable with
        the remote's own message when it cannot be reached or refuses; nothing is left half-done.
        """
        ...

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        """Message, author and time of a commit."""
        ...

    def watch(self) -> AsyncIterator[None]:
        """Yields whenever the remote may have changed: at once for a local path, else at each poll or nudge."""
        ...

    def nudge(self) -> None:
        """Poll now: a webhook or central reports that the remote has changed."""
        ...
