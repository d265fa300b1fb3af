"""A deployments repository in memory, and how the roles and a person reach it: `ports.GitSource` over a cable."""

import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath

import anyio

from homeport.adapters.git.changes import nest
from homeport.adapters.git.commits import signature
from homeport.errors import GitUnavailable, InvalidInput, NotFound, PermanentError
from homeport.ports import Change, Decide, TreeFile
from homeport.vocabulary import Commit

Tree = Mapping[str, bytes]
POLL_SPREAD = 0.1
PERSON = "person"
RACES_MAX = 20


@dataclass(frozen=True, slots=True)
class Recorded:
    parents: tuple[Commit, ...]
    tree: Tree
    message: str
    author: str
    at: datetime


@dataclass(slots=True, eq=False)
class Remote:
    """The repository itself. `now` tells the time of whoever commits here by hand."""

    now: Callable[[], datetime]
    commits: dict[Commit, Recorded] = field(default_factory=dict)
    order: list[Commit] = field(default_factory=list)
    head: Commit | None = None
    on_commit: Callable[[Commit], None] = lambda commit: None
    """Told of each commit just before it becomes the newest."""

    @property
    def tree(self) -> Tree:
        return self.commits[self.head].tree if self.head is not None else {}

    def add(self, recorded: Recorded) -> Commit:
        text = repr((recorded.parents, sorted(recorded.tree.items()), recorded.message, len(self.order)))
        commit = Commit(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
        self.commits[commit] = recorded
        self.order.append(commit)
        self.on_commit(commit)
        return commit

    def push(self, changes: Sequence[Change], *, message: str, author: str = PERSON) -> Commit:
        """As a person does it, on top of whatever is there."""
        parents = () if self.head is None else (self.head,)
        self.head = self.add(Recorded(parents, changed(self.tree, changes), message, author, self.now()))
        return self.head

    def rewrite(self, tree: Tree) -> Commit:
        """Somebody forces a history that forgets the present one."""
        self.head = self.add(Recorded((), tree, "rewritten", "vandal", self.now()))
        return self.head

    def join(self, other: Commit, tree: Tree) -> Commit:
        """Brings a forgotten history back into the branch."""
        parents = (other,) if self.head in (None, other) else (other, self.head)
        self.head = self.add(Recorded(tuple(each for each in parents if each), tree, "joined", PERSON, self.now()))
        return self.head

    def is_ancestor(self, older: Commit, newer: Commit) -> bool:
        if older not in self.commits or newer not in self.commits:
            return False
        seen, waiting = set(), [newer]
        while waiting:
            commit = waiting.pop()
            if commit == older:
                return True
            if commit not in seen:
                seen.add(commit)
                waiting.extend(self.commits[commit].parents)
        return False


Travel = Callable[[], Awaitable[None]]
"""Takes as long as a way to the remote and back; raises GitUnavailable when there is no way."""


async def _at_once() -> None:
    await anyio.lowlevel.checkpoint()


def _there_is_space() -> None:
    pass


class MemoryGit:
    """`ports.GitSource`. `clone` is the commit that this role has fetched last; it is on its disk."""

    def __init__(
        self,
        remote: Remote,
        clone: list[Commit],
        *,
        travel: Travel = _at_once,
        poll_seconds: float = 30.0,
        chance: random.Random | None = None,
        insist_on_space: Callable[[], None] = _there_is_space,
    ) -> None:
        """`insist_on_space` raises when the clone cannot grow."""
        self.url = "memory://deployments"
        self._remote = remote
        self._clone = clone
        self._travel = travel
        self._poll_seconds = poll_seconds
        self._chance = chance or random.Random(0)
        self._insist_on_space = insist_on_space
        self._bell = anyio.Event()
        self._turn = anyio.Lock()

    async def fetch(self) -> Commit | None:
        await self._travel()
        tip = self._remote.head
        if tip is not None and tip not in self._clone:
            self._insist_on_space()
            self._clone[:] = [tip]
        return tip

    async def head(self) -> Commit | None:
        return self._clone[0] if self._clone else None

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        tree, start = self._found(commit).tree, _start(folder)
        return [TreeFile(path, tree[path][: size_max + 1]) for path in sorted(tree) if path.startswith(start)]

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        old: Tree = {} if before is None else self._found(before).tree
        new, start = self._found(after).tree, _start(folder)
        return sorted(path for path in {*old, *new} if path.startswith(start) and old.get(path) != new.get(path))

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        found: dict[str, Commit] = {}
        commit: Commit | None = after
        while commit is not None and commit != before:
            parents = self._remote.commits[commit].parents
            parent = parents[0] if parents else None
            for path in await self.changed_paths(parent, commit, folder):
                found.setdefault(path, commit)
            commit = None if before is None else parent
        return found

    async def contents(self, commit: Commit, path: str, *, size_max: int) -> Sequence[bytes]:
        found: list[bytes] = []
        at: Commit | None = commit
        while at is not None:
            content = self._found(at).tree.get(path)
            if content is not None and (not found or found[-1] != content) and len(content) <= size_max:
                found.append(content)
            parents = self._remote.commits[at].parents
            at = parents[0] if parents else None
        return found

    async def before_changes(
        self, commit: Commit, folder: str, paths: Collection[str]
    ) -> Mapping[str, Sequence[Commit]]:
        found: dict[str, list[Commit]] = {}
        at = commit
        while self._remote.commits[at].parents:
            parent = self._remote.commits[at].parents[0]
            for path in {*await self.changed_paths(parent, at, folder)} & {*paths}:
                found.setdefault(path, []).append(parent)
            at = parent
        return found

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool:
        return self._remote.is_ancestor(older, newer)

    async def commit(self, decide: Decide, *, author: str) -> Commit | None:
        async with self._turn:
            for _ in range(RACES_MAX):
                base = await self.fetch()
                tree: Tree = {} if base is None else self._remote.commits[base].tree
                try:
                    proposal = await decide(base)
                except PermanentError:
                    if await self.fetch() == base:
                        raise
                    continue
                _check(tree, proposal.changes)
                after = changed(tree, proposal.changes)
                if after == tree:
                    return None
                self._insist_on_space()
                await self._travel()
                if self._remote.head == base:
                    parents = () if base is None else (base,)
                    made = self._remote.add(
                        Recorded(parents, after, proposal.message, _name(author), self._remote.now())
                    )
                    self._remote.head = made
                    self._clone[:] = [made]
                    return made
        raise GitUnavailable(f"The Git repository {self.url} moved {RACES_MAX} times while a change was made to it.")

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        recorded = self._found(commit)
        return recorded.message, recorded.author, recorded.at

    def _found(self, commit: Commit) -> Recorded:
        if commit not in self._remote.commits:
            raise NotFound(f'There is no commit "{commit}".')
        return self._remote.commits[commit]

    async def watch(self) -> AsyncIterator[None]:
        while True:
            bell = self._bell
            yield
            with anyio.move_on_after(self._poll_seconds * self._chance.uniform(1 - POLL_SPREAD, 1 + POLL_SPREAD)):
                await bell.wait()

    def nudge(self) -> None:
        bell, self._bell = self._bell, anyio.Event()
        bell.set()


def _start(folder: str) -> str:
    """What a path below the folder begins with."""
    inside = folder.removeprefix("./").strip("/")
    return f"{inside}/" if inside else ""


def _check(tree: Tree, changes: Sequence[Change]) -> None:
    """Raises InvalidInput for a path that is none, or is both a file and a folder."""
    nest(changes)
    gone = {change.path for change in changes if change.content is None}
    files = tree.keys() - gone
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents}
    for change in changes:
        above = {str(folder) for folder in PurePosixPath(change.path).parents}
        if change.content is not None and (change.path in folders or above & files):
            raise InvalidInput(f'"{change.path}" is both a file and a folder.')


def _name(author: str) -> str:
    """As a commit can hold it."""
    return str(signature(author).name)


def changed(tree: Tree, changes: Sequence[Change]) -> Tree:
    after = dict(tree)
    for change in changes:
        if change.content is None:
            after.pop(change.path, None)
        else:
            after[change.path] = change.content
    return after
