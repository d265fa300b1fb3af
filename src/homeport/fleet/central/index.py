"""Syncs the table of deployments with a commit of the deployments repository.

Level-based: any change in a site's folder makes us read that folder as a whole and compare it with the table, so a
missed commit costs nothing. The cost depends on the folders that changed, not on the fleet.
Nothing is ever deleted because a file could not be read, a marker is missing, or history was rewritten.
"""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from typing import Final, Protocol

import anyio
from anyio.to_thread import run_sync

from homeport.catalog.deployment import deployment_path, marker_path, parse_deployment
from homeport.catalog.marker import read_labels
from homeport.core.events import deployment_event, unwanted_event, wanted_event
from homeport.core.model.deployment import Desired, Revision, digest_of_bytes
from homeport.core.model.event import Deployment, NewEvent, Site
from homeport.core.model.report import FileProblem
from homeport.core.values.stored import commit_of, strings_of
from homeport.errors import Conflict, PermanentError, TooLarge, TransientError
from homeport.fleet.central.reports.restatements import note_missed
from homeport.fleet.central.tracing import trace_pushes
from homeport.fleet.shared.adoption import invalid_row, problem_text, problem_texts, wanted_row
from homeport.fleet.shared.revisions import REVISIONS_KEPT, kept_revisions
from homeport.fleet.shared.snapshot import (
    FILE_SIZE_MAX,
    BrokenSource,
    Known,
    Snapshot,
    deployment_of,
    read_snapshot,
    site_folder,
)
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    Clock,
    DeploymentFilter,
    GitSource,
    InThread,
    Reader,
    Store,
    Tracer,
    Transaction,
    TreeFile,
)
from homeport.vocabulary import SITE_NAME_PATTERN, Commit, DeploymentId, Digest, EventKind, SiteName, State

INDEXED: Final = "indexed_commit"
ROOT: Final = "deployments"
DISPUTING: Final = "disputing_sites"
"""Sites whose folders contain a deployment that another site also has."""
FORMER_SITES_MAX: Final = 10
FOLDERS_MAX: Final = 50
"""With more changed folders than this, reading everything once is cheaper than reading each."""
_SITE_NAME: Final = re.compile(SITE_NAME_PATTERN)

log = get_log("homeport.fleet.central.index")


class HistoryRewritten(Conflict):
    """The deployments repository no longer contains the commit that is applied."""

    code = "history-rewritten"


@dataclass(frozen=True, slots=True)
class Folder:
    """A site's folder at one commit, read and compared with the table."""

    site: SiteName
    snapshot: Snapshot | None
    """None when the marker is missing or another site's: then nothing of this site changes."""
    complaint: str = ""
    contents: Mapping[DeploymentId, bytes] = field(default_factory=dict)
    """Of the adopted files."""
    labels: Mapping[str, str] | None = None
    """None when they are invalid: then they stay unchanged."""
    label_complaint: str = ""


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
        folders = await self._read(commit, sorted({*_sites_of(changed), *disputing}), known)
        others = [await read(self._git, before, commit, self._in_thread) for read in self._readers]
        _, author, _ = await self._git.log(commit)
        update = _Update(commit, author, self._clock.now(), frozenset(changed))

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
            update = _Update(indexed, author, self._clock.now(), frozenset())
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
            update = _Update(commit, author, self._clock.now(), frozenset())
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
        (folder,) = await self._folders(commit, [site], {})
        return folder

    async def _read(
        self, commit: Commit, sites: Sequence[SiteName], known: Mapping[DeploymentId, Desired]
    ) -> Sequence[Folder]:
        if not sites:
            return ()
        async with self._store.read() as reader:
            wanted = await _wanted_by_site(reader, sites)
        seen: dict[SiteName, dict[DeploymentId, Known]] = {
            site: {row.id: row for row in rows if row.problem is None} for site, rows in wanted.items()
        }
        for desired in known.values():
            seen.setdefault(desired.site, {})[desired.id] = desired
        return await self._folders(commit, sites, seen)

    async def _folders(
        self, commit: Commit, sites: Sequence[SiteName], known: Mapping[SiteName, Mapping[DeploymentId, Known]]
    ) -> list[Folder]:
        """A folder that is too large to read is the problem of its site alone."""
        whole = await self._by_site(commit) if len(sites) > FOLDERS_MAX else None
        by_site: dict[SiteName, Sequence[TreeFile]] = {}
        unread: list[Folder] = []
        for site in sites:
            try:
                by_site[site] = await self._files(commit, site_folder(site)) if whole is None else whole.get(site, ())
            except TooLarge as error:
                unread.append(Folder(site, None, f"{error} Nothing is changed at this site."))
        return [*await self._in_thread(_read_folders, commit, by_site, known), *unread]

    async def _by_site(self, commit: Commit) -> Mapping[SiteName, Sequence[TreeFile]] | None:
        """The files of every site in one read; None where they are too many for that."""
        found: dict[SiteName, list[TreeFile]] = {}
        with suppress(TooLarge):
            for file in await self._files(commit, ROOT):
                found.setdefault(SiteName(file.path.split("/")[1]), []).append(file)
            return found
        return None

    async def _files(self, commit: Commit, folder: str) -> Sequence[TreeFile]:
        return await self._git.files(commit, folder, size_max=FILE_SIZE_MAX)


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


@dataclass(frozen=True, slots=True)
class _Update:
    """Writes the changes of a commit, in one transaction."""

    commit: Commit
    author: str
    now: datetime
    changed: frozenset[str]

    async def write(self, tx: Transaction, folders: Sequence[Folder]) -> None:
        rows: list[Deployment] = []
        events: list[NewEvent] = []
        sites = await _sites_by_name(tx, [folder.site for folder in folders])
        wanted = await _wanted_by_site(tx, [folder.site for folder in folders])
        named = [id_ for folder in folders if folder.snapshot for id_ in _named(folder.snapshot)]
        present = {row.id: row for row in await tx.deployments_by_ids(named)}
        for folder in folders:
            if folder.snapshot is None:
                if any(path.startswith(f"{site_folder(folder.site)}/") for path in self.changed):
                    events.append(self._event(EventKind.SITE_PROBLEM, folder.complaint, folder.site))
                continue
            await self._label(tx, sites.get(folder.site), folder, events)
            # All removals come before any adoption: a deployment that is gone here may be elsewhere now.
            self._drop(wanted.get(folder.site, ()), folder.snapshot.present, rows, events)
        present.update({row.id: row for row in rows})
        disputed: set[tuple[SiteName, DeploymentId]] = set()
        for folder in folders:
            if folder.snapshot is not None:
                disputed |= await self._adopt(tx, folder, present, rows=rows, events=events)
                self._complain(folder.site, folder.snapshot.problems, present, rows, events)
        await tx.put_deployments(rows)
        await tx.put_revisions(
            [
                revision
                for folder in folders
                if folder.snapshot is not None
                for revision in kept_revisions(folder.snapshot, folder.contents, author=self.author, now=self.now)
                if (folder.site, revision.deployment_id) not in disputed
            ],
            keep=REVISIONS_KEPT,
        )
        await tx.set_value(DISPUTING, json.dumps(sorted({site for site, _ in disputed})))
        await tx.append_events(events)
        await tx.set_value(INDEXED, self.commit)

    async def _label(self, tx: Transaction, before: Site | None, folder: Folder, events: list[NewEvent]) -> None:
        """Creates the site, with the labels of its marker."""
        site = before or Site(folder.site, joined_at=self.now, last_seen=None, applied_commit=None)
        path = marker_path(folder.site)
        if folder.labels is None and path in self.changed:
            events.append(self._event(EventKind.SITE_PROBLEM, folder.label_complaint, folder.site, path=path))
        labels = site.labels if folder.labels is None else folder.labels
        if before is None or labels != before.labels:
            await tx.put_site(replace(site, labels=labels))
        if labels != site.labels:
            listed = ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no label"
            message = f"site {folder.site} has {listed}, commit {self.commit[:8]} by {self.author}"
            events.append(self._event(EventKind.SITE_LABELLED, message, folder.site, labels=dict(labels)))

    async def write_past(
        self, tx: Transaction, wanted: Sequence[Desired], present: Folder, *, left: Sequence[DeploymentId] = ()
    ) -> None:
        """Deployments that were wanted at this commit. None of them is wanted any more, unless its file still exists
        and is only invalid: then it stays unchanged. Those that `left` were moved to another site."""
        known = {row.id: row for row in await tx.deployments_by_ids([desired.id for desired in wanted])}
        events: list[NewEvent] = []
        rows = []
        for desired in wanted:
            before = known.get(desired.id)
            if before is not None and (before.site == desired.site or before.wanted):
                continue  # indexed meanwhile
            if before is not None:
                before = await self._moved(tx, before, desired, events)
            rows.append(wanted_row(before, desired, self.commit, author=self.author, now=self.now))
        there = {row.id for row in rows if present.snapshot is None or row.id in present.snapshot.present}
        problems = problem_texts(() if present.snapshot is None else present.snapshot.problems)
        await tx.put_deployments([replace(row, wanted=row.id in there, problem=problems.get(row.id)) for row in rows])
        events += [
            self._deployment_event(
                EventKind.DEPLOYMENT_CREATED,
                row,
                f"{row.name} {row.app_version} was wanted at {row.site} for a while, commit {self.commit[:8]}",
            )
            for row in rows
        ]
        await tx.append_events(events)
        for deployment_id in left:
            await _note_former_site(tx, deployment_id, present.site)

    async def _adopt(
        self,
        tx: Transaction,
        folder: Folder,
        present: Mapping[DeploymentId, Deployment],
        *,
        rows: list[Deployment],
        events: list[NewEvent],
    ) -> set[tuple[SiteName, DeploymentId]]:
        """Returns what another site has too. Its folder is read again with each commit until that is resolved."""
        assert folder.snapshot is not None
        disputed, site, snapshot = set(), folder.site, folder.snapshot
        for desired in snapshot.desired.values():
            before = present.get(desired.id)
            if before is not None and before.site != site:
                if before.wanted:
                    disputed.add((site, desired.id))
                    if desired.path in self.changed:
                        message = f"{desired.path}: the id is already used at site {before.site}; nothing has changed"
                        events.append(self._event(EventKind.SITE_PROBLEM, message, site, path=desired.path))
                    continue
                before = await self._moved(tx, before, desired, events)
            row = wanted_row(before, desired, self.commit, author=self.author, now=self.now)
            rows.append(row)
            events.append(
                wanted_event(row, is_new=before is None, commit=self.commit, now=self.now, author=self.author)
            )
        return disputed

    async def _moved(
        self, tx: Transaction, before: Deployment, desired: Desired, events: list[NewEvent]
    ) -> Deployment:
        """A file that moved from one site's folder to another's: the deployment starts again there, with nothing to
        go back to, since older content names the previous site. That site still removes what runs, and nothing more
        is asked of it. The new site may have had it before, and reported what was ignored: it is asked for it
        again."""
        await tx.drop_instances([item.key for item in await tx.instances([desired.id])])
        await tx.drop_revisions([desired.id])
        await _note_former_site(tx, desired.id, before.site)
        await _note_former_site(tx, desired.id, desired.site)
        await note_missed(tx, {desired.id: f"moved to {desired.site} {self.commit}"})
        message = (
            f"{desired.name} moved from {before.site} to {desired.site}, commit {self.commit[:8]} by {self.author}"
        )
        events.append(self._deployment_event(EventKind.DEPLOYMENT_CHANGED, before, message, moved_to=desired.site))
        return replace(before, state=State.DELETED)

    def _complain(
        self,
        site: SiteName,
        problems: Sequence[FileProblem],
        present: Mapping[DeploymentId, Deployment],
        rows: list[Deployment],
        events: list[NewEvent],
    ) -> None:
        """An invalid file leaves its deployment unchanged, with the problem shown on it."""
        first: dict[str, FileProblem] = {}
        for problem in problems:
            first.setdefault(problem.path, problem)
        for problem in first.values():
            message = problem_text(problem)
            before = present.get(problem.deployment_id) if problem.deployment_id else None
            if before is not None and before.site != site:
                before = None  # another site's deployment, which this file says nothing about
            if before is not None and before.problem != message:
                rows.append(invalid_row(before, message, self.now))
                events.append(
                    self._deployment_event(
                        EventKind.DEPLOYMENT_REFUSED, before, message, path=problem.path, line=problem.line
                    )
                )
            elif before is None and problem.path in self.changed:
                events.append(
                    self._event(EventKind.SITE_PROBLEM, message, site, path=problem.path, line=problem.line)
                )

    def _drop(
        self,
        wanted: Sequence[Deployment],
        present: frozenset[DeploymentId],
        rows: list[Deployment],
        events: list[NewEvent],
    ) -> None:
        for row in wanted:
            if row.id in present:
                continue
            gone = replace(
                row, wanted=False, problem=None, commit=self.commit, version=row.version + 1, updated_at=self.now
            )
            rows.append(gone)
            events.append(unwanted_event(gone, commit=self.commit, now=self.now, author=self.author))

    def _deployment_event(self, kind: EventKind, row: Deployment, message: str, **data: object) -> NewEvent:
        return deployment_event(kind, row, message, commit=self.commit, now=self.now, author=self.author, **data)

    def _event(self, kind: EventKind, message: str, site: SiteName, **data: object) -> NewEvent:
        return NewEvent(kind, self.now, message, site=site, data={"commit": self.commit, **data})


async def known_sites(reader: Reader, names: Sequence[SiteName]) -> set[SiteName]:
    """Those of `names` that are existing sites."""
    if len(names) > FOLDERS_MAX:
        return {site.name for site in await reader.sites()}
    return {name for name in names if await reader.site(name) is not None}


async def _sites_by_name(reader: Reader, names: Sequence[SiteName]) -> dict[SiteName, Site]:
    if len(names) > FOLDERS_MAX:
        return {site.name: site for site in await reader.sites()}
    found = [await reader.site(name) for name in names]
    return {site.name: site for site in found if site is not None}


async def _wanted_by_site(reader: Reader, sites: Sequence[SiteName]) -> dict[SiteName, list[Deployment]]:
    many = len(sites) > FOLDERS_MAX
    wanted: dict[SiteName, list[Deployment]] = {}
    for where in [DeploymentFilter()] if many else [DeploymentFilter(site=site) for site in sites]:
        for row in await reader.deployments(where):
            if row.wanted:
                wanted.setdefault(row.site, []).append(row)
    return wanted


def _readable(content: bytes, site: SiteName, deployment_id: DeploymentId) -> Desired | None:
    try:
        return parse_deployment(content, deployment_path(site, deployment_id), site)
    except PermanentError:
        return None


def moved_from(deployment_id: DeploymentId) -> str:
    """The key that stores the sites that have had the file of a deployment which was moved, the last one first."""
    return f"moved_from:{deployment_id}"


async def former_sites(reader: Reader, deployment_id: DeploymentId) -> list[SiteName]:
    """A site that was offline may still report on a deployment after its file was moved twice."""
    return [SiteName(name) for name in (await reader.value(moved_from(deployment_id)) or "").split()]


async def _note_former_site(tx: Transaction, deployment_id: DeploymentId, former: SiteName) -> None:
    sites = [former, *(site for site in await former_sites(tx, deployment_id) if site != former)]
    await tx.set_value(moved_from(deployment_id), " ".join(sites[:FORMER_SITES_MAX]))


def _sites_of(paths: Sequence[str]) -> list[SiteName]:
    """The sites whose folders contain these paths. Paths elsewhere, or below an invalid name, are ignored."""
    names = {parts[1] for path in paths if len(parts := path.split("/")) >= 3}
    return sorted(SiteName(name) for name in names if _SITE_NAME.fullmatch(name))


def _read_folders(
    commit: Commit,
    by_site: Mapping[SiteName, Sequence[TreeFile]],
    known: Mapping[SiteName, Mapping[DeploymentId, Known]],
) -> list[Folder]:
    """Parses only files whose bytes differ from the stored ones."""
    return [_read_folder(site, commit, files, known.get(site, {})) for site, files in by_site.items()]


def _read_folder(
    site: SiteName, commit: Commit, files: Sequence[TreeFile], known: Mapping[DeploymentId, Known]
) -> Folder:
    try:
        snapshot = read_snapshot(site, commit, files, known)
    except BrokenSource as error:
        return Folder(site, None, f"{error}.")
    contents = {
        deployment_id: file.content
        for file in files
        if (deployment_id := deployment_of(file.path)) is not None and deployment_id in snapshot.desired
    }
    folder = Folder(site, snapshot, contents=contents)
    marker = next(file for file in files if file.path == marker_path(site))
    try:
        return replace(folder, labels=read_labels(marker.content, marker.path))
    except PermanentError as error:
        return replace(folder, label_complaint=f"{error}; its labels have not changed")


def _named(snapshot: Snapshot) -> list[DeploymentId]:
    return [*snapshot.desired, *(item.deployment_id for item in snapshot.problems if item.deployment_id)]
