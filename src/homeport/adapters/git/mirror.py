"""A remote's ref, read through our clone: fetch, read, compare. Read-only.

Each read opens the clone again (0.2 ms), in a worker thread: no handle is shared between threads or kept across a
fetch, and a replaced clone is found without further ado. Operations on the remote run one at a time, so that a fetch
never reverts what a push has just recorded.
"""

import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pygit2
from anyio import to_thread

from homeport.adapters.files.disk import disk_problem, disk_problems
from homeport.adapters.git import trees
from homeport.adapters.git.address import ANYWHERE, GitAddress, PinnedRoute, pin_to
from homeport.adapters.git.clone import DAMAGE, Tracked, beside, discard, make_clone, newest_commit, open_clone
from homeport.adapters.git.failures import explain, too_slow
from homeport.adapters.git.program import GitResult, run_git
from homeport.adapters.network.reach import judged_address
from homeport.errors import GitUnavailable
from homeport.log import get_log
from homeport.ports import TreeFile
from homeport.vocabulary import Commit

T = TypeVar("T")

log = get_log("homeport.git")

UNTIDY_MAX = 500
"""Roughly the number of new objects after which `git gc --auto` is run."""

TIDY_SECONDS_MAX = 120.0

FUTILE_SECONDS = 300.0
"""How long no new clone is made after one that was no better: then the remote has what cannot be read."""

_NO_SUCH_REF = "couldn't find remote ref"
_BROKEN_CLONE = re.compile(
    r"not a git repository: '|invalid gitfile|bad object|corrupt|bad config|invalid sha1 pointer"
    r"|missing (blob|tree|commit)|unable to read|cannot lock ref"
    r"|Unable to create '.*\.lock'|did not send all necessary objects"
)


class Mirror:
    """Reads one ref of one remote. Created by `snapshot`, and the base of every `Repository`."""

    def __init__(
        self, address: GitAddress, clone: Path, tracked: Tracked, newest: Commit | None, *, timeout_seconds: float
    ) -> None:
        self.url = address.shown
        """The remote's address for messages, without credentials."""
        self._address = address
        self._clone = clone.absolute()
        self._tracked = tracked
        self._timeout_seconds = timeout_seconds
        self._head = newest
        self._tip = newest
        """The remote's commit at our last contact; unlike `_head`, None again when its branch is deleted."""
        self._heard_at = float("-inf")
        self._untidy = 0
        self._clones_made = 0
        self._futile_until = float("-inf")
        self._remote_turn = anyio.Lock()

    async def fetch(self) -> Commit | None:
        async with self._remote_turn:
            try:
                tip = await to_thread.run_sync(self._unchanged) or await self._fetch_into(self._clone)
            except trees.Damaged as error:
                tip = await self._replace_clone(str(error))
            self._untidy += tip != self._tip
            self._hear(tip)
            if self._untidy > UNTIDY_MAX:
                await self._tidy()
            return tip

    async def head(self) -> Commit | None:
        return self._head

    async def files(self, commit: Commit, folder: str, *, size_max: int) -> Sequence[TreeFile]:
        return await self._read(partial(trees.read_files, commit=commit, folder=folder, size_max=size_max))

    async def changed_paths(self, before: Commit | None, after: Commit, folder: str) -> Sequence[str]:
        return await self._read(partial(trees.read_changed_paths, before=before, after=after, folder=folder))

    async def is_ancestor(self, older: Commit, newer: Commit) -> bool:
        return await self._read(partial(trees.is_ancestor, older=older, newer=newer))

    async def origins(self, before: Commit | None, after: Commit, folder: str) -> Mapping[str, Commit]:
        return await self._read(partial(trees.read_origins, before=before, after=after, folder=folder))

    async def contents(self, commit: Commit, path: str, *, size_max: int) -> Sequence[bytes]:
        return await self._read(partial(trees.read_contents, commit=commit, path=path, size_max=size_max))

    async def before_changes(
        self, commit: Commit, folder: str, paths: Collection[str]
    ) -> Mapping[str, Sequence[Commit]]:
        return await self._read(
            partial(trees.read_before_changes, commit=commit, folder=folder, paths=frozenset(paths))
        )

    async def log(self, commit: Commit) -> tuple[str, str, datetime]:
        return await self._read(partial(trees.read_log, commit=commit))

    def _hear(self, tip: Commit | None) -> None:
        self._tip = tip
        self._head = tip or self._head
        self._heard_at = time.monotonic()

    async def _read(self, work: Callable[[pygit2.Repository], T]) -> T:
        """Runs `work` on the clone; a clone that proves to be damaged is fetched again, once."""
        clones_made = self._clones_made
        try:
            return await to_thread.run_sync(self._work_on_clone, work)
        except DAMAGE as error:
            async with self._remote_turn:
                if self._clones_made == clones_made:
                    self._hear(await self._replace_clone(repr(error)))
        try:
            return await to_thread.run_sync(self._work_on_clone, work)
        except DAMAGE as error:
            self._futile_until = time.monotonic() + FUTILE_SECONDS
            raise GitUnavailable(f"The local copy of {self.url} cannot be read ({error}).") from error

    def _work_on_clone(self, work: Callable[[pygit2.Repository], T]) -> T:
        with disk_problems(self._clone):
            return work(open_clone(self._clone))

    def _unchanged(self) -> Commit | None:
        """The commit that both sides have, where the remote is a folder here whose ref can be read: git would start
        five programs to find that there is nothing to fetch. None leaves it to git, and so does every problem."""
        if self._address.folder is None or self._tip is None:
            return None
        try:
            reference = pygit2.Repository(str(self._address.folder)).references.get(self._tracked.reference)
            is_same = reference is not None and str(reference.target) == self._tip
            return self._tip if is_same and newest_commit(self._clone, self._tracked) == self._tip else None
        except DAMAGE:
            return None

    async def _fetch_into(self, clone: Path) -> Commit | None:
        """Raises Damaged where the clone is the cause, GitUnavailable where the remote is."""
        outcome = await self._run(
            "fetch", "--progress", "--no-tags", "--no-auto-maintenance", "--no-write-fetch-head",
            "--no-recurse-submodules", "origin", self._tracked.refspec, clone=clone,
        )  # fmt: skip
        if outcome.exit_code != 0:
            if _NO_SUCH_REF in outcome.stderr:
                return None
            if _BROKEN_CLONE.search(outcome.stderr):
                raise trees.Damaged(outcome.stderr) from explain(self._address, outcome.stderr)
            raise explain(self._address, outcome.stderr)
        try:
            return await to_thread.run_sync(newest_commit, clone, self._tracked)
        except DAMAGE as error:
            raise trees.Damaged(repr(error)) from error

    async def _replace_clone(self, reason: str) -> Commit | None:
        """Fetches everything into a new clone and replaces the old one, which stays until then."""
        if time.monotonic() < self._futile_until:
            raise explain(self._address, reason)
        log.warning("git clone damaged, cloning again", url=self.url, reason=reason.strip())
        new = beside(self._clone)
        try:
            await to_thread.run_sync(make_clone, new, self._address, self._tracked)
            tip = await self._fetch_into(new)
            await to_thread.run_sync(self._put_in_place, new)
        except DAMAGE as error:
            self._futile_until = time.monotonic() + FUTILE_SECONDS
            raise explain(self._address, str(error)) from error
        finally:
            await to_thread.run_sync(partial(shutil.rmtree, new, ignore_errors=True))
        return tip

    def _put_in_place(self, new: Path) -> None:
        kept = beside(new)  # outside the reach of `discard`, which removes leftovers of the old clone
        new.replace(kept)
        discard(self._clone)
        kept.replace(self._clone)
        self._clones_made += 1

    async def _tidy(self) -> None:
        """Packs loose objects. It takes seconds at most, once in thousands of commits."""
        self._untidy = 0
        try:
            await run_git(self._clone, "gc", "--auto", "--quiet", timeout_seconds=TIDY_SECONDS_MAX)
        except TimeoutError:
            log.warning("git clone housekeeping timed out", url=self.url, seconds=TIDY_SECONDS_MAX)

    async def _run(self, *arguments: str, clone: Path | None = None, stdin: bytes = b"") -> GitResult:
        route = await self._route()
        try:
            with disk_problems(self._clone):
                outcome = await run_git(
                    clone or self._clone,
                    *(part for setting in route.settings for part in ("-c", setting)),
                    *arguments,
                    timeout_seconds=self._timeout_seconds,
                    stdin=stdin,
                    ssh_options=route.ssh_options,
                )
        except TimeoutError as error:
            raise too_slow(self._address, self._timeout_seconds) from error
        if outcome.exit_code != 0:
            self._check_own_disk(outcome.stderr)
        return outcome

    async def _route(self) -> PinnedRoute:
        remote = self._address.remote
        try:
            judged = None if remote is None else await judged_address(remote.host, remote.port)
        except OSError as error:
            raise GitUnavailable(f"{self._address.shown} cannot be reached: unknown host.") from error
        return ANYWHERE if judged is None else pin_to(self._address, judged)

    def _check_own_disk(self, stderr: str) -> None:
        """A problem of our own disk is not the remote's, and no reason to fetch everything again."""
        own = "\n".join(line for line in stderr.splitlines() if not line.startswith("remote:"))
        problem = disk_problem(own, self._clone)
        if problem is not None:
            raise problem
