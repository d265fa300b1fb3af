"""Makes the table of deployments equal to a commit of the deployments repository.

Level by level: whatever changed in a site's folder makes us look at that folder as a whole and compare it with
what is known, so a missed commit costs nothing. The cost follows the folders that changed, not the fleet.
Nothing is ever deleted because a file could not be read, a marker is missing, or history was rewritten.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final

import anyio
import structlog
from anyio.to_thread import run_sync

from homeport.catalog.deployment import MARKER_NAME, marker_path
from homeport.catalog.marker import read_labels
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import Deployment, NewEvent, Site
from homeport.core.model.report import FileProblem
from homeport.errors import Conflict, PermanentError
from homeport.fleet.adoption import problem_text, wanted_row
from homeport.fleet.revisions import REVISIONS_KEPT, kept_revisions
from homeport.fleet.rollout_files import RolloutFile, RolloutUpdate, read_changed
from homeport.fleet.snapshot import FILE_SIZE_MAX, BrokenSource, Snapshot, read_snapshot, site_folder
from homeport.fleet.tracing import trace_pushes
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
from homeport.vocabulary import SITE_NAME_PATTERN, Commit, DeploymentId, EventKind, SiteName

INDEXED: Final = "indexed_commit"
ROOT: Final = "deployments"
FOLDERS_MAX: Final = 50
"""With more changed folders than this, one reading of everything is cheaper than one of each."""
_SITE_NAME: Final = re.compile(SITE_NAME_PATTERN)

log = structlog.get_logger("homeport.fleet.index")


class HistoryRewritten(Conflict):
    """The deployments repository no longer contains the commit that is applied."""

    code = "history-rewritten"


@dataclass(frozen=True, slots=True)
class Folder:
    """A site's folder at one commit, read and compared with what is known."""

    site: SiteName
    paths: frozenset[str]
    snapshot: Snapshot | None
    """None when the marker is missing: then nothing of this site changes."""
    complaint: str = ""
    contents: Mapping[DeploymentId, bytes] = field(default_factory=dict)
    """Of the files that differ from what is known, whoever wrote them."""
    labels: Mapping[str, str] | None = None
    """None when they cannot be read: then they stay as they are."""
    label_complaint: str = ""


class Index:
    """One per central. Callers may overlap; commits are taken one after the other and only forwards."""

    def __init__(
        self,
        store: Store,
        git: GitSource,
        clock: Clock,
        *,
        tracer: Tracer | None = None,
        in_thread: InThread = run_sync,
    ) -> None:
        self._store = store
        self._tracer = tracer
        self._git = git
        self._clock = clock
        self._in_thread = in_thread
        self._turn = anyio.Lock()

    async def catch_up(self) -> Commit | None:
        """Fetches and follows the branch; returns its commit. Raises GitUnavailable or HistoryRewritten."""
        commit = await self._git.fetch()
        if commit is not None:
            await self.follow(commit)
        return commit

    async def indexed(self) -> Commit | None:
        async with self._store.read() as reader:
            value = await reader.value(INDEXED)
        return None if value is None else Commit(value)

    async def follow(self, commit: Commit, *, known: Mapping[DeploymentId, Desired] | None = None) -> None:
        """Afterwards the store shows this commit, or a later one. `known` spares the parsing of what the caller
        has just written itself."""
        async with self._turn:
            before = await self.indexed()
            if before == commit:
                return
            if before is not None and not await self._git.is_ancestor(before, commit):
                if await self._git.is_ancestor(commit, before):
                    return
                raise HistoryRewritten(
                    f"The deployments repository was rewritten: {commit[:8]} does not descend from {before[:8]}, "
                    "which is applied. Everything stays as it is.",
                    hint=f"Bring commit {before} back into the branch's history.",
                )
            began = self._clock.now()
            changed = await self._git.changed_paths(before, commit, ROOT)
            folders = await self._read(commit, _sites_of(changed), known or {})
            rollouts = await read_changed(self._git, before, commit, self._in_thread)
            _, author, _ = await self._git.log(commit)
            update = _Update(commit, author, self._clock.now(), frozenset(changed))
            await self._store.write(lambda tx: update.write(tx, folders, rollouts))
            if self._tracer is not None:
                await trace_pushes(
                    self._tracer, self._git, before, commit, folder=ROOT, began=began, ended=self._clock.now()
                )
        log.info("commit indexed", commit=commit[:12], sites=len(folders), author=author)

    async def look_back(self, site: SiteName, commit: Commit, deployment_ids: Sequence[DeploymentId]) -> None:
        """Makes known what a site followed at an older commit and is gone again: it came and went between two looks
        of ours, and the site will tell what became of it."""
        async with self._turn:
            indexed = await self.indexed()
            async with self._store.read() as reader:
                known = {row.id for row in await reader.deployments_by_ids(deployment_ids)}
            missed = set(deployment_ids) - known
            if not missed or indexed is None or not await self._git.is_ancestor(commit, indexed):
                return
            files = await self._git.files(commit, site_folder(site), size_max=FILE_SIZE_MAX)
            (folder,) = await self._in_thread(_read_folders, commit, {site: files}, {}, {})
            if folder.snapshot is None:
                return
            _, author, _ = await self._git.log(commit)
            update = _Update(commit, author, self._clock.now(), frozenset())
            wanted = [desired for desired in folder.snapshot.desired.values() if desired.id in missed]
            await self._store.write(lambda tx: update.write_past(tx, wanted))

    async def _read(
        self, commit: Commit, sites: Sequence[SiteName], known: Mapping[DeploymentId, Desired]
    ) -> Sequence[Folder]:
        if not sites:
            return ()
        by_site: dict[SiteName, list[TreeFile]] = {site: [] for site in sites}
        if len(sites) > FOLDERS_MAX:
            for file in await self._git.files(commit, ROOT, size_max=FILE_SIZE_MAX):
                by_site.get(SiteName(file.path.split("/")[1]), []).append(file)
        else:
            for site in sites:
                by_site[site].extend(await self._git.files(commit, site_folder(site), size_max=FILE_SIZE_MAX))
        async with self._store.read() as reader:
            wanted = await _wanted_by_site(reader, sites)
        revisions = {row.id: row.revision for rows in wanted.values() for row in rows if row.problem is None}
        return await self._in_thread(_read_folders, commit, by_site, revisions, known)


@dataclass(frozen=True, slots=True)
class _Update:
    """Writes what a commit changed, in one transaction."""

    commit: Commit
    author: str
    now: datetime
    changed: frozenset[str]

    async def write(self, tx: Transaction, folders: Sequence[Folder], rollouts: Sequence[RolloutFile]) -> None:
        rows: list[Deployment] = []
        events: list[NewEvent] = []
        sites = await _sites_by_name(tx, [folder.site for folder in folders])
        wanted = await _wanted_by_site(tx, [folder.site for folder in folders])
        named = [id_ for folder in folders if folder.snapshot for id_ in _named(folder.snapshot)]
        present = {row.id: row for row in await tx.deployments_by_ids(named)}
        for folder in folders:
            if folder.snapshot is None:
                events.append(self._event(EventKind.SITE_PROBLEM, folder.complaint, folder.site))
                continue
            await self._label(tx, sites.get(folder.site), folder, events)
            self._adopt(folder.site, folder.snapshot, present, rows, events)
            self._complain(folder.site, folder.snapshot.problems, present, rows, events)
            self._drop(wanted.get(folder.site, ()), folder, rows, events)
        await tx.put_deployments(rows)
        await tx.put_revisions(
            [
                revision
                for folder in folders
                if folder.snapshot is not None
                for revision in kept_revisions(folder.snapshot, folder.contents, author=self.author, now=self.now)
            ],
            keep=REVISIONS_KEPT,
        )
        await tx.append_events(events)
        await RolloutUpdate(self.commit, self.author, self.now).write(tx, rollouts)
        await tx.set_value(INDEXED, self.commit)

    async def _label(self, tx: Transaction, before: Site | None, folder: Folder, events: list[NewEvent]) -> None:
        """Makes the site known, with the labels of its marker."""
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

    async def write_past(self, tx: Transaction, wanted: Sequence[Desired]) -> None:
        """Deployments that were wanted at this commit and no longer are."""
        rows = [wanted_row(None, desired, self.commit, author=self.author, now=self.now) for desired in wanted]
        await tx.put_deployments([replace(row, wanted=False) for row in rows])
        await tx.append_events(
            [
                self._deployment_event(
                    EventKind.DEPLOYMENT_CREATED,
                    row,
                    f"{row.name} {row.app_version} was wanted at {row.site} for a while, commit {self.commit[:8]}",
                )
                for row in rows
            ]
        )

    def _adopt(
        self,
        site: SiteName,
        snapshot: Snapshot,
        present: Mapping[DeploymentId, Deployment],
        rows: list[Deployment],
        events: list[NewEvent],
    ) -> None:
        for desired in snapshot.desired.values():
            before = present.get(desired.id)
            if before is not None and before.site != site:
                message = f"{desired.path}: the id is already used at site {before.site}; nothing has changed"
                events.append(self._event(EventKind.SITE_PROBLEM, message, site, path=desired.path))
                continue
            row = wanted_row(before, desired, self.commit, author=self.author, now=self.now)
            rows.append(row)
            kind = EventKind.DEPLOYMENT_CREATED if before is None else EventKind.DEPLOYMENT_CHANGED
            verb = "is wanted" if before is None else "changes"
            message = f"{row.name} {row.app_version} {verb} at {site}, commit {self.commit[:8]} by {self.author}"
            events.append(self._deployment_event(kind, row, message))

    def _complain(
        self,
        site: SiteName,
        problems: Sequence[FileProblem],
        present: Mapping[DeploymentId, Deployment],
        rows: list[Deployment],
        events: list[NewEvent],
    ) -> None:
        """A file that cannot be read keeps its deployment as it is, and says so there."""
        first: dict[str, FileProblem] = {}
        for problem in problems:
            first.setdefault(problem.path, problem)
        for problem in first.values():
            message = problem_text(problem)
            before = present.get(problem.deployment_id) if problem.deployment_id else None
            if before is not None and before.site == site and before.problem != message:
                rows.append(replace(before, problem=message, version=before.version + 1, updated_at=self.now))
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
        self, wanted: Sequence[Deployment], folder: Folder, rows: list[Deployment], events: list[NewEvent]
    ) -> None:
        for row in wanted:
            if f"{site_folder(row.site)}/{row.id}.yaml" in folder.paths:
                continue
            gone = replace(
                row, wanted=False, problem=None, commit=self.commit, version=row.version + 1, updated_at=self.now
            )
            rows.append(gone)
            message = f"{row.name} is no longer wanted at {row.site}, commit {self.commit[:8]} by {self.author}"
            events.append(self._deployment_event(EventKind.DEPLOYMENT_UNWANTED, gone, message))

    def _deployment_event(self, kind: EventKind, row: Deployment, message: str, **data: object) -> NewEvent:
        return NewEvent(
            kind,
            self.now,
            message,
            site=row.site,
            deployment_id=row.id,
            data={
                "name": row.name,
                "app_name": row.app_name,
                "app_version": row.app_version,
                "revision": row.revision,
                "commit": self.commit,
                "author": self.author,
                **data,
            },
        )

    def _event(self, kind: EventKind, message: str, site: SiteName, **data: object) -> NewEvent:
        return NewEvent(kind, self.now, message, site=site, data={"commit": self.commit, **data})


async def known_sites(reader: Reader, names: Sequence[SiteName]) -> set[SiteName]:
    """Those of `names` that are sites."""
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


def _sites_of(paths: Sequence[str]) -> list[SiteName]:
    """The sites whose folders hold these paths. What lies elsewhere, or below no possible name, is not ours."""
    names = {parts[1] for path in paths if len(parts := path.split("/")) >= 3}
    return sorted(SiteName(name) for name in names if _SITE_NAME.match(name))


def _read_folders(
    commit: Commit,
    by_site: Mapping[SiteName, Sequence[TreeFile]],
    revisions: Mapping[DeploymentId, str],
    known: Mapping[DeploymentId, Desired],
) -> list[Folder]:
    """Parses only files whose bytes differ from what is known."""
    return [_read_folder(site, commit, files, revisions, known) for site, files in by_site.items()]


def _read_folder(
    site: SiteName,
    commit: Commit,
    files: Sequence[TreeFile],
    revisions: Mapping[DeploymentId, str],
    known: Mapping[DeploymentId, Desired],
) -> Folder:
    different = [
        file
        for file in files
        if revisions.get(DeploymentId(PurePosixPath(file.path).stem)) != digest_of_bytes(file.content)
    ]
    paths = frozenset(file.path for file in files)
    try:
        snapshot = read_snapshot(site, commit, different, known)
    except BrokenSource as error:
        return Folder(site, paths, None, f"{site_folder(site)}/{MARKER_NAME}: {error}. Nothing has changed.")
    contents = {DeploymentId(PurePosixPath(file.path).stem): file.content for file in different}
    folder = Folder(site, paths, snapshot, contents=contents)
    marker = next(file for file in files if file.path == marker_path(site))
    try:
        return replace(folder, labels=read_labels(marker.content, marker.path))
    except PermanentError as error:
        return replace(folder, label_complaint=f"{error}; its labels have not changed")


def _named(snapshot: Snapshot) -> list[DeploymentId]:
    return [*snapshot.desired, *(item.deployment_id for item in snapshot.problems if item.deployment_id)]
