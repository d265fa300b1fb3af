"""The deployments repository: a mirror that can also commit on top of the remote's newest commit.

A commit is an object in our clone until the remote has accepted it; only then does a ref point to it. The remote
decides races: it rejects a push that is not on top of its newest commit, and then the caller's `decide` runs again.
"""

import random
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pygit2
from anyio import to_thread

from homeport.adapters.files.disk import disk_problems
from homeport.adapters.git.address import GitAddress, parse_address
from homeport.adapters.git.bare import checked_branch
from homeport.adapters.git.bulk import BULK_FILES_MIN, COMMAND, import_stream
from homeport.adapters.git.changes import Nested, nest
from homeport.adapters.git.clone import Tracked, prepare_clone
from homeport.adapters.git.commits import check_places, is_same_tree, signature, write_commit
from homeport.adapters.git.failures import explain, refused
from homeport.adapters.git.mirror import Mirror
from homeport.adapters.git.program import GitResult
from homeport.adapters.git.watch import RepositoryWatch
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import GitUnavailable, PermanentError
from homeport.failpoints import Point, passing
from homeport.ports import Decide, Proposal
from homeport.vocabulary import Commit

_CHANCE = random.Random()
RECENT_SECONDS = 10.0
"""A head this recent is used without a fetch: one push instead of a fetch and a push."""

RACES_MAX = 60
"""One writer wins every race, so n rounds are enough for n writers."""

PAUSE_SECONDS_MAX = 3.0
"""The longest wait after a lost race."""

LANDED_SECONDS_MAX = 5.0
"""How long to ask the remote whether a push whose response was lost succeeded."""

_RACE = re.compile(
    r"fetch first|non-fast-forward|stale info|failed to update ref|cannot lock ref|incorrect old value"
    r"|reference already exists|but expected|failed to lock"
)


async def open_repository(
    url: str,
    clone: Path,
    *,
    branch: str = "main",
    poll_seconds: float = 30.0,
    timeout_seconds: float = 30.0,
    shown: str | None = None,
) -> "Repository":
    """Needs no network: a site can start while its remote is down. `clone` is created, or created again, as needed.
    `shown` is the repository's name in messages, where its URL would mean nothing to a user."""
    address, tracked = parse_address(url), Tracked(checked_branch(branch))
    address = address if shown is None else replace(address, shown=shown)
    with disk_problems(clone):
        newest = await to_thread.run_sync(prepare_clone, clone, address, tracked)
    watch = RepositoryWatch(address.folder, tracked.reference, poll_seconds=poll_seconds)
    return Repository(address, clone, tracked, newest, watch=watch, timeout_seconds=timeout_seconds)


async def snapshot(
    url_or_path: str, clone: Path, *, branch: str | None = None, timeout_seconds: float = 30.0
) -> tuple[Commit | None, Mirror]:
    """Any repository in its current state, read-only: its default branch (a checkout's current one) or `branch`."""
    address = parse_address(url_or_path)
    tracked = Tracked("HEAD" if branch is None else checked_branch(branch))
    with disk_problems(clone):
        newest = await to_thread.run_sync(prepare_clone, clone, address, tracked)
    mirror = Mirror(address, clone, tracked, newest, timeout_seconds=timeout_seconds)
    return await mirror.fetch(), mirror


class Repository(Mirror):
    """`ports.GitSource`. Writers of one process take turns; the push detects those of other processes."""

    def __init__(
        self,
        address: GitAddress,
        clone: Path,
        tracked: Tracked,
        newest: Commit | None,
        *,
        watch: RepositoryWatch,
        timeout_seconds: float,
    ) -> None:
        super().__init__(address, clone, tracked, newest, timeout_seconds=timeout_seconds)
        self._watch = watch
        self._writer_turn = anyio.Lock()

    def watch(self) -> AsyncIterator[None]:
        return self._watch.moves()

    def nudge(self) -> None:
        self._watch.ring()

    async def commit(self, decide: Decide, *, author: str) -> Commit | None:
        async with self._writer_turn:
            started_at = time.monotonic()
            if started_at - self._heard_at > RECENT_SECONDS:
                await self.fetch()
            for race in range(RACES_MAX):
                base, attempted_at = self._tip, time.monotonic()
                try:
                    made = await self._make(await decide(base), base, signature(author))
                except PermanentError:
                    if await self._is_newest(base, since=started_at):
                        raise
                    continue
                if made is None:
                    if await self._is_newest(base, since=started_at):
                        return None
                    continue
                if await self._push(made, base):
                    return made
                await anyio.sleep(pause_seconds(race, time.monotonic() - attempted_at, chance=_CHANCE.random()))
                await self.fetch()
        raise GitUnavailable(
            f"The Git repository {self.url} moved {RACES_MAX} times while a change was made to it.",
            hint="Others are writing to it without a pause; try again.",
        )

    async def _is_newest(self, base: Commit | None, *, since: float) -> bool:
        """Before refusing or doing nothing, the head must be known for certain: an assumed one is fetched."""
        if self._heard_at < since:
            await self.fetch()
        return self._tip == base

    async def _make(self, proposal: Proposal, base: Commit | None, author: pygit2.Signature) -> Commit | None:
        if not proposal.changes:
            return None
        passing(Point.GIT_BEFORE_COMMIT)
        nested = nest(proposal.changes)
        if len(proposal.changes) >= BULK_FILES_MIN:
            return await self._make_in_bulk(base, nested, message=proposal.message, author=author)
        self._untidy += len(proposal.changes)
        return await self._read(
            partial(write_commit, base=base, changes=nested, message=proposal.message, author=author)
        )

    async def _make_in_bulk(
        self, base: Commit | None, changes: Nested, *, message: str, author: pygit2.Signature
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

    async def _push(self, made: Commit, base: Commit | None) -> bool:
        """False when another writer was faster. Raises GitUnavailable when the remote refuses or is unreachable."""
        try:
            outcome = await self._try_push(made, base)
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

    async def _try_push(self, made: Commit, base: Commit | None) -> GitResult:
        """Only on top of `base`: a branch that was just set back to an older commit would take `made` as
        well, and what was taken back would be there again."""
        async with self._remote_turn:
            passing(Point.GIT_BEFORE_PUSH)
            self._heard_at = float("-inf")  # until the response arrives, the remote's state is unknown
            outcome = await self._run(
                "push", "--porcelain", "--progress", "--no-verify", "--no-signed", "--no-follow-tags",
                "--recurse-submodules=no", f"--force-with-lease={self._tracked.reference}:{base or ''}",
                "origin", f"{made}:{self._tracked.reference}",
            )  # fmt: skip
            if outcome.exit_code == 0:
                passing(Point.GIT_AFTER_PUSH)
                self._hear(made)
            return outcome

    async def _has_landed(self, made: Commit, failure: GitUnavailable) -> bool:
        """After a connection lost during a push it is unknown whether it succeeded; ask the remote, if it
        responds."""
        try:
            with anyio.fail_after(LANDED_SECONDS_MAX):
                tip = await self.fetch()
        except (GitUnavailable, TimeoutError):
            raise failure from None
        if tip is None or not await self.is_ancestor(made, tip):
            raise failure
        return True


def pause_seconds(race: int, attempt_seconds: float, *, chance: float) -> float:
    """Backoff before the next attempt; it starts at the duration of an attempt, which measures how busy the remote
    is."""
    return BackoffPolicy(attempt_seconds, PAUSE_SECONDS_MAX).delay_seconds(race + 1, chance=chance)


def rejection(outcome: GitResult) -> str | None:
    """The reason in the line that `push --porcelain` prints for a rejected ref; None without one."""
    for line in outcome.stdout.splitlines():
        match = re.match(r"!\t[^\t]*\t\[[^\]]*\] ?\(?(?P<reason>.*?)\)?$", line)
        if match:
            return match["reason"]
    return None
