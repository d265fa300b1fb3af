"""Writes what a commit changes in the folders of sites: rows of deployments, events and labels, in one transaction.
Nothing is deleted because a file could not be read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from homeport.catalog.deployment import marker_path
from homeport.core.events import deployment_event, unwanted_event, wanted_event
from homeport.core.model.deployment import Desired
from homeport.core.model.event import Deployment, NewEvent, Site
from homeport.core.model.report import FileProblem
from homeport.fleet.central.indexing.folders import Folder
from homeport.fleet.central.indexing.former_sites import note_former_site
from homeport.fleet.central.reports.restatements import note_missed
from homeport.fleet.shared.adoption import invalid_row, problem_text, problem_texts, wanted_row
from homeport.fleet.shared.named_sites import sites_by_name, wanted_by_site
from homeport.fleet.shared.revisions import REVISIONS_KEPT, kept_revisions
from homeport.fleet.shared.snapshot import Snapshot, site_folder
from homeport.lazy_dataclass import dataclass
from homeport.ports import Transaction
from homeport.vocabulary import Commit, DeploymentId, EventKind, SiteName, State

INDEXED: Final = "indexed_commit"
DISPUTING: Final = "disputing_sites"
"""Sites whose folders contain a deployment that another site also has."""


@dataclass(frozen=True, slots=True)
class CommitUpdate:
    """Writes the changes of a commit, in one transaction."""

    commit: Commit
    author: str
    now: datetime
    changed: frozenset[str]

    async def write(self, tx: Transaction, folders: Sequence[Folder]) -> None:
        rows: list[Deployment] = []
        events: list[NewEvent] = []
        sites = await sites_by_name(tx, [folder.site for folder in folders])
        wanted = await wanted_by_site(tx, [folder.site for folder in folders])
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
            await note_former_site(tx, deployment_id, present.site)

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
        await note_former_site(tx, desired.id, before.site)
        await note_former_site(tx, desired.id, desired.site)
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


def _named(snapshot: Snapshot) -> list[DeploymentId]:
    return [*snapshot.desired, *(item.deployment_id for item in snapshot.problems if item.deployment_id)]
