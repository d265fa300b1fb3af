"""The deployments repository: what a mirror can read, and commits on top of what the remote has.

A commit is an object in our clone until the remote has taken it; only then does any ref know it. The remote
decides races: it refuses a push that is not on top of its newest commit, and then the caller decides again.
"""

import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
from anyio import to_thread

from homeport.adapters.git.address import Address, parse_address
from homeport.adapters.git.bare import checked_branch
from homeport.adapters.git.bulk import BULK_FILES_MIN, COMMAND, import_stream
from homeport.adapters.git.changes import Nested, nest
from homeport.adapters.git.clone import Tracked, prepare_clone
from homeport.adapters.git.commits import check_places, is_same_tree, write_commit
from homeport.adapters.git.failures import explain, refused
from homeport.adapters.git.mirror import Mirror
from homeport.adapters.git.program import Outcome
from homeport.adapters.git.watch import Watch
from homeport.errors import GitUnavailable, PermanentError
from homeport.failpoints import Point, passing
from homeport.ports import Change
from homeport.vocabulary import Commit

_CHANCE = random.Random()
RECENT_SECONDS = 10.0
"""A head heard of this recently is built on without asking first: one push instead of a fetch and a push."""

RACES_MAX = 60
"""Somebody wins every race, so that with n writers n rounds are enough."""

PAUSE_SECONDS_MAX = 3.0
"""A loser waits for as long as a few of its own attempts take: that measures how busy the remote is."""

LANDED_SECONDS_MAX = 5.0
"""How long to ask a remote whether a push whose answer was lost came through."""

_RACE = re.compile(
    r"fetch first|non-fast-forward|stale info|failed to update ref|cannot lock ref|incorrect old value"
    r"|reference already exists|but expected|failed to lock"
)

Decide = Callable[[Commit | None], Awaitable[Sequence[Change]]]


async def open_repository(
    url: str, clone: Path, *, branch: str = "main", poll_seconds: float = 30.0, timeout_seconds: float = 30.0
) -> "Repository":
    """Needs no network: a site starts with its remote gone. `clone` is made, or made anew, as needed."""
    address, tracked = parse_address(url), Tracked(checked_branch(branch))
    newest = await to_thread.run_sync(prepare_clone, clone, address, tracked)
    watch = Watch(address.folder, tracked.reference, poll_seconds=poll_seconds)
    return Repository(address, clone, tracked, newest, watch=watch, timeout_seconds=timeout_seconds)


async def snapshot(
    url_or_path: str, clone: Path, *, branch: str | None = None, timeout_seconds: float = 30.0
) -> tuple[Commit | None, Mirror]:
    """Any repository as it is now, to be read: its default branch (a checkout's current one) or `branch`."""
    address = parse_address(url_or_path)
    tracked = Tracked("HEAD" if branch is None else checked_branch(branch))
    newest = await to_thread.run_sync(prepare_clone, clone, address, tracked)
    mirror = Mirror(address, clone, tracked, newest, timeout_seconds=timeout_seconds)
    return await mirror.fetch(), mirror


class Repository(Mirror):
    """`ports.GitSource`. Writers of one process take turns; those of others are met in the push."""

    def __init__(
        self,
        address: Address,
        clone: Path,
        tracked: Tracked,
        newest: Commit | None,
        *,
        watch: Watch,
        timeout_seconds: float,
    ) -> None:
        super().__init__(address, clone, tracked, newest, timeout_seconds=timeout_seconds)
        self._watch = watch
        self._writer_turn = anyio.Lock()

    def watch(self) -> AsyncIterator[None]:
        return self._watch.moves()

    def nudge(self) -> None:
        self._watch.ring()

    async def commit(self, decide: Decide, *, message: str, author: str) -> Commit | None:
        async with self._writer_turn:
            started_at = time.monotonic()
            if started_at - self._heard_at > RECENT_SECONDS:
                await self.fetch()
            for race in range(RACES_MAX):
                base, attempted_at = self._tip, time.monotonic()
                try:
                    made = await self._make(decide, base, message=message, author=author)
                except PermanentError:
                    if await self._is_newest(base, since=started_at):
                        raise
                    continue
                if made is None:
                    if await self._is_newest(base, since=started_at):
                        return None
                    continue
                if await self._push(made):
                    return made
                await anyio.sleep(pause_seconds(race, time.monotonic() - attempted_at))
                await self.fetch()
        raise GitUnavailable(
            f"The Git repository {self.url} moved {RACES_MAX} times while a change was made to it.",
            hint="Others are writing to it without a pause; try again.",
        )

    async def _is_newest(self, base: Commit | None, *, since: float) -> bool:
        """To refuse, or to find nothing to do, takes certainty; a head that was only believed is asked for."""
        if self._heard_at < since:
            await self.fetch()
        return self._tip == base

    async def _make(self, decide: Decide, base: Commit | None, *, message: str, author: str) -> Commit | None:
        changes = await decide(base)
        if not changes:
            return None
        passing(Point.GIT_BEFORE_COMMIT)
        nested = nest(changes)
        if len(changes) >= BULK_FILES_MIN:
            return await self._make_in_bulk(base, nested, message=message, author=author)
        self._untidy += len(changes)
        return await self._read(partial(write_commit, base=base, changes=nested, message=message, author=author))

    async def _make_in_bulk(
        self, base: Commit | None, changes: Nested, *, message: str, author: str
    ) -> Commit | None:
        await self._read(partial(check_places, base=base, changes=changes))
        stream = await to_thread.run_sync(
            partial(import_stream, base=base, changes=changes, message=message, author=author)
        )
        outcome = await self._run(*COMMAND, stdin=stream)
        if outcome.exit_code != 0:
            raise explain(self._address, outcome.stderr)
        made = Commit(outcome.stdout.strip())
        return None if await self._read(partial(is_same_tree, base=base, made=made)) else made

    async def _push(self, made: Commit) -> bool:
        """False when somebody else was faster. Raises GitUnavailable when the remote refuses or is gone."""
        try:
            outcome = await self._try_push(made)
        except GitUnavailable as failure:
            return await self._has_landed(made, failure)
        if outcome.exit_code == 0:
            return True
        reason = rejection(outcome)
        if reason is None:
            return await self._has_landed(made, explain(self._address, outcome.stderr))
        if _RACE.search(reason):
            return False
        raise refused(self._address, reason, outcome.stderr)

    async def _try_push(self, made: Commit) -> Outcome:
        async with self._remote_turn:
            passing(Point.GIT_BEFORE_PUSH)
            self._heard_at = float("-inf")  # until its answer is here, nobody knows what the remote has
            outcome = await self._run(
                "push", "--porcelain", "--progress", "--no-verify", "--no-signed", "--no-follow-tags",
                "--recurse-submodules=no", "origin", f"{made}:{self._tracked.reference}",
            )  # fmt: skip
            if outcome.exit_code == 0:
                passing(Point.GIT_AFTER_PUSH)
                self._hear(made)
            return outcome

    async def _has_landed(self, made: Commit, failure: GitUnavailable) -> bool:
        """A connection lost in a push leaves open whether it came through; the remote knows, if it answers."""
        try:
            with anyio.fail_after(LANDED_SECONDS_MAX):
                tip = await self.fetch()
        except (GitUnavailable, TimeoutError):
            raise failure from None
        if tip is None or not await self.is_ancestor(made, tip):
            raise failure
        return True


def pause_seconds(race: int, attempt_seconds: float) -> float:
    return _CHANCE.uniform(0, min(PAUSE_SECONDS_MAX, 2 * attempt_seconds * (race + 1)))


def rejection(outcome: Outcome) -> str | None:
    """The reason of the line that `push --porcelain` prints for a ref that was not taken; None without one."""
    for line in outcome.stdout.splitlines():
        match = re.match(r"!\t[^\t]*\t\[[^\]]*\] ?\(?(?P<reason>.*?)\)?$", line)
        if match:
            return match["reason"]
    return None
