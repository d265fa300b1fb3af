"""Syncs the table of deployments with a commit of the deployments repository.

Level-based: any change in a site's folder makes us read that folder as a whole and compare it with the table, so a
missed commit costs nothing. The cost depends on the folders that changed, not on the fleet.
Nothing is ever deleted because a file could not be read, a marker is missing, or history was rewritten.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol

import anyio
from anyio.to_thread import run_sync

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.core.model.deployment import Desired, Revision, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.values.stored import commit_of, strings_of
from homeport.errors import Conflict, PermanentError, TransientError
from homeport.fleet.central.indexing.folders import ROOT, Folder, FolderReader, sites_of
from homeport.fleet.central.indexing.former_sites import former_sites
from homeport.fleet.central.indexing.update import DISPUTING, INDEXED, CommitUpdate
from homeport.fleet.central.tracing import trace_pushes
from homeport.fleet.shared.named_sites import wanted_by_site
from homeport.fleet.shared.revisions import REVISIONS_KEPT
from homeport.fleet.shared.snapshot import (
    FILE_SIZE_MAX,
    Known,
)
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    Clock,
    GitSource,
    InThread,
    Store,
    Tracer,
    Transaction,
)
from homeport.vocabulary import Commit, DeploymentId, Digest, SiteName

log = get_log("homeport.fleet.central.index")


class HistoryRewritten(Conflict):
    """The deployments repository no longer contains the commit that is applied."""

    code = "history-rewritten"


@dataclass(frozen=True, slots=True)
class Indexed:
    """A commit that is being indexed."""

    commit: Commit
    author: str
    now: datetime


WriteRead = Callable[[Transaction, Indexed], Awaitable[None]]
"""Writes what a reader read, in the same transaction as the rest of the commit."""


class CommitReader(Protocol):
    """Reads a capability's own files in the deployments repository, as far as they changed between two commits."""

    async def __call__(
        self, git: GitSource, before: Commit | None, commit: Commit, in_thread: InThread, /
    ) -> WriteRead: ...


class Index:
    """One per process. Callers and replicas may run concurrently: commits are indexed one after the other, only
    forwards, each once."""

    def __init__(
        self,
        store: Store,
        git: GitSource,
        clock: Clock,
        *,
        tracer: Tracer | None = None,
        in_thread: InThread = run_sync,
        readers: Sequence["CommitReader"] = (),
    ) -> None:
        """`readers` read what else a commit changes, apart from deployments."""
        self._readers = readers
        self._store = store
        self._tracer = tracer
        self._git = git
        self._clock = clock
        self._in_thread = in_thread
        self._folders = FolderReader(git, in_thread)
        self._turn = anyio.Lock()

    async def catch_up(self) -> Commit | None:
        """Fetches and indexes the branch; returns its commit. Raises GitUnavailable or HistoryRewritten."""
        commit = await self._git.fetch()
        if commit is not None:
            await self.follow(commit)
        return commit

    async def indexed(self) -> Commit | None:
        async with self._store.read() as reader:
            return await reader.value_as(INDEXED, commit_of)

    async def follow(self, commit: Commit, *, known: Mapping[DeploymentId, Desired] | None = None) -> None:
        """Afterwards the store reflects this commit, or a later one. `known` saves parsing what the caller has just
        written itself."""
        async with self._turn:
            while True:
                before = await self.indexed()
                if before is not None and await self._is_shown(commit, before):
                    return None
                # Another replica may have indexed a commit in between; then continue from there.
                with suppress(_Outrun):
                    return await self._show(before, commit, known or {})

    async def follow_base(self, head: Commit | None) -> None:
        """Indexes the parent commit of a change. Raises HistoryRewritten where it does not contain all that is
        indexed, because the branch was reset or deleted: a change on top of it would hide the loss."""
        if head is not None:
            await self.follow(head)
        indexed = await self.indexed()
        if indexed is None or (head is not None and await self._git.is_ancestor(indexed, head)):
            return
        await self._git.fetch()  # the caller retries, in case only our head was old
        raise _rewritten(head, indexed)

    async def _is_shown(self, commit: Commit, indexed: Commit) -> bool:
        """Whether `indexed` already contains this commit. Raises HistoryRewritten when neither contains the other."""
        for is_last_look in (False, True):
            if commit == indexed or await self._git.is_ancestor(commit, indexed):
                return True
            if await self._git.is_ancestor(indexed, commit):
                return False
            if not is_last_look:
                # A commit that another replica has indexed may not be in this clone yet.
                await self._git.fetch()
        raise _rewritten(commit, indexed)

    async def _show(self, before: Commit | None, commit: Commit, known: Mapping[DeploymentId, Desired]) -> None:
        """Raises _Outrun, with nothing written, when `before` is no longer the indexed commit."""
        began = self._clock.now()
        changed = await self._git.changed_paths(before, commit, ROOT)
        async with self._store.read() as reader:
            disputing = [SiteName(name) for name in await reader.value_as(DISPUTING, strings_of) or ()]
        folders = await self._read(commit, sorted({*sites_of(changed), *disputing}), known)
        others = [await read(self._git, before, commit, self._in_thread) for read in self._readers]
        _, author, _ = await self._git.log(commit)
        update = CommitUpdate(commit, author, self._clock.now(), frozenset(changed))

        async def write(tx: Transaction) -> None:
            if await tx.value_as(INDEXED, commit_of) != before:
                raise _Outrun
            await update.write(tx, folders)
            for write_other in others:
                await write_other(tx, Indexed(commit, author, update.now))

        await self._store.write(write)
        log.info("commit indexed", commit=commit[:12], sites=len(folders), author=author)
        if self._tracer is not None:
            await trace_pushes(
                self._tracer, self._git, before, commit, folder=ROOT, began=began, ended=self._clock.now()
            )

    async def find_revision(self, site: SiteName, deployment_id: DeploymentId, revision: Digest) -> None:
        """Stores an older revision that came and went between two fetches of ours, if Git has had it: a site that saw
        it may roll back to it."""
        async with self._turn:
            indexed = await self.indexed()
            if indexed is None:
                return
            contents = await self._contents(indexed, site, deployment_id)
            content = next((each for each in contents if digest_of_bytes(each) == revision), None)
            desired = None if content is None else _readable(content, site, deployment_id)
            if content is None or desired is None:
                return
            _, author, at = await self._git.log(indexed)
            found = Revision(deployment_id, revision, desired.app_version, content, indexed, author, at)
            await self._store.write(lambda tx: tx.put_revisions([found], keep=REVISIONS_KEPT))

    async def recall(self, site: SiteName, deployment_ids: Collection[DeploymentId]) -> None:
        """Indexes deployments that a site still has, as Git last had them in its folder: our database was lost, and
        their file is gone or invalid since. One that is at another site now was moved there from this one."""
        async with self._turn:
            indexed = await self.indexed()
            if indexed is None:
                return
            missed, elsewhere = await self._unknown(site, deployment_ids)
            past = [each for id_ in sorted(missed) if (each := await self._last(indexed, site, id_)) is not None]
            had = [id_ for id_ in sorted(elsewhere) if await self._contents(indexed, site, id_)]
            if not past and not had:
                return
            owned, left = await self._of_last_owner(indexed, site, [elsewhere[id_] for id_ in had])
            past += owned
            now = await self._folder(site, indexed)
            _, author, _ = await self._git.log(indexed)
            update = CommitUpdate(indexed, author, self._clock.now(), frozenset())
            await self._store.write(lambda tx: update.write_past(tx, past, now, left=left))

    async def _unknown(
        self, site: SiteName, deployment_ids: Collection[DeploymentId]
    ) -> tuple[set[DeploymentId], dict[DeploymentId, Deployment]]:
        """Those of them that are not in the table, and those that are another site's there and were never this
        one's."""
        async with self._store.read() as reader:
            rows = await reader.deployments_by_ids(sorted(deployment_ids))
            others = {
                row.id: row for row in rows if row.site != site and site not in await former_sites(reader, row.id)
            }
        return set(deployment_ids) - {row.id for row in rows}, others

    async def _of_last_owner(
        self, commit: Commit, site: SiteName, rows: Sequence[Deployment]
    ) -> tuple[list[Desired], list[DeploymentId]]:
        """Of deployments that this site had for a while and another site has in the table: those that are gone from
        both, and that this site had last; and the rest, which were moved away from it."""
        owned = []
        for row in rows:
            here, there = deployment_path(site, row.id), deployment_path(row.site, row.id)
            before = await self._git.before_changes(commit, ROOT, (here, there))
            last_here, last_there = (next(iter(before.get(path, ())), None) for path in (here, there))
            if row.wanted or last_here is None or last_there is None or last_here == last_there:
                continue
            if await self._git.is_ancestor(last_there, last_here):
                desired = await self._last(commit, site, row.id)
                owned += [] if desired is None else [desired]
        return owned, sorted({row.id for row in rows} - {desired.id for desired in owned})

    async def _last(self, commit: Commit, site: SiteName, deployment_id: DeploymentId) -> Desired | None:
        """The newest content of its file that is valid."""
        contents = await self._contents(commit, site, deployment_id)
        return next((found for each in contents if (found := _readable(each, site, deployment_id))), None)

    async def _contents(self, commit: Commit, site: SiteName, deployment_id: DeploymentId) -> Sequence[bytes]:
        return await self._git.contents(commit, deployment_path(site, deployment_id), size_max=FILE_SIZE_MAX)

    async def look_back(self, site: SiteName, commit: Commit, deployment_ids: Sequence[DeploymentId]) -> None:
        """Indexes deployments that a site saw at an older commit and that are gone from its folder again: they came
        and went between two fetches of ours, and the site will report on them. One that is at another site now was
        moved there from this one, unless it is gone there too and was at this one last. Raises NotInHistory."""
        async with self._turn:
            indexed = await self.indexed()
            missed, elsewhere = await self._unknown(site, deployment_ids)
            if not (missed or elsewhere) or indexed is None:
                return
            if not await self._git.is_ancestor(commit, indexed):
                raise NotInHistory(
                    f"Site {site} follows commit {commit[:8]}, which is not in the history of {indexed[:8]}.",
                    hint=f"Bring commit {commit} back into the branch's history; the site keeps its reports.",
                )
            then, now = await self._folder(site, commit), await self._folder(site, indexed)
            if then.snapshot is None:
                return
            _, author, _ = await self._git.log(commit)
            update = CommitUpdate(commit, author, self._clock.now(), frozenset())
            wanted = [desired for desired in then.snapshot.desired.values() if desired.id in missed]
            for deployment_id in sorted(missed & then.snapshot.present - then.snapshot.desired.keys()):
                desired = await self._last(commit, site, deployment_id)  # It was invalid then.
                wanted += [] if desired is None else [desired]
            still = frozenset() if now.snapshot is None else now.snapshot.present
            had = [row for id_, row in sorted(elsewhere.items()) if id_ in then.snapshot.present and id_ not in still]
            owned, left = await self._of_last_owner(indexed, site, had)
            wanted += owned
            await self._store.write(lambda tx: update.write_past(tx, wanted, now, left=left))

    async def _folder(self, site: SiteName, commit: Commit) -> Folder:
        (folder,) = await self._folders.of(commit, [site], {})
        return folder

    async def _read(
        self, commit: Commit, sites: Sequence[SiteName], known: Mapping[DeploymentId, Desired]
    ) -> Sequence[Folder]:
        if not sites:
            return ()
        async with self._store.read() as reader:
            wanted = await wanted_by_site(reader, sites)
        seen: dict[SiteName, dict[DeploymentId, Known]] = {
            site: {row.id: row for row in rows if row.problem is None} for site, rows in wanted.items()
        }
        for desired in known.values():
            seen.setdefault(desired.site, {})[desired.id] = desired
        return await self._folders.of(commit, sites, seen)


def _rewritten(commit: Commit | None, indexed: Commit) -> HistoryRewritten:
    what = "the branch is gone" if commit is None else f"{commit[:8]} does not descend from {indexed[:8]}"
    return HistoryRewritten(
        f"The deployments repository was rewritten: {what}, and {indexed[:8]} is applied. Everything stays as it is.",
        hint=f"Bring commit {indexed} back into the branch's history.",
    )


class NotInHistory(TransientError):
    """A site follows a commit that does not lead to what is shown here. The branch was rewritten before
    central first saw it, and may bring the commit back."""


class _Outrun(Exception):
    """Another replica was faster."""


def _readable(content: bytes, site: SiteName, deployment_id: DeploymentId) -> Desired | None:
    try:
        return parse_deployment(content, deployment_path(site, deployment_id), site)
    except PermanentError:
        return None
