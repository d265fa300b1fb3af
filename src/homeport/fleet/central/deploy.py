"""Writes the desired state to Git: one commit for any number of sites.

The decision is made on the parent commit of the change, and made again after a lost race, so two requests can never
give one name to two deployments.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from anyio.to_thread import run_sync

from homeport.catalog.deployment import asks_the_same, deployment_path, marker_path, parse_deployment
from homeport.catalog.marker import render_marker
from homeport.catalog.marks import Mark, mark_text, with_mark
from homeport.core.data import data_trailer
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.update_values import MergedValues
from homeport.errors import Conflict, NotFound, TooLarge
from homeport.fleet.central.index import HistoryRewritten, Index
from homeport.fleet.central.indexing.folders import ROOT
from homeport.fleet.central.merging import MergedRequest, failed_of, merge_targets
from homeport.fleet.central.resolve import DeployRequest, DeployTarget, Resolved, resolve
from homeport.fleet.central.sites.messages import SiteMessages
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, is_marked, read_snapshot, site_folder
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Change, Decide, DeploymentFilter, GitSource, Ids, InThread, Proposal, Store, TreeFile
from homeport.vocabulary import Commit, DeploymentId, Digest, RolloutId, SiteName

NAMED_MAX: Final = 5_000
"""Of more sites than this, all deployments are read: a database takes so many names in a query."""
LISTED_MAX: Final = 100
"""How many deployments a commit message names, and for how many a response lists the kept values."""

log = get_log("homeport.fleet.central.deploy")


@dataclass(frozen=True, slots=True)
class Deployed:
    rollout_id: RolloutId
    deployment_ids: tuple[DeploymentId, ...]
    """In the order of the targets."""
    commit: Commit
    unchanged: tuple[DeploymentId, ...]
    kept: tuple[tuple[SiteName, MergedValues], ...] = ()
    """Values that were set before and stay, or were dropped; of the first sites."""


@dataclass(frozen=True, slots=True)
class RepeatedDeployment:
    deployment: Deployment
    revision: Digest
    commit: Commit


@dataclass(frozen=True, slots=True)
class Written:
    """The new file of one site. `content` is None where the file already matches."""

    target: DeployTarget
    deployment_id: DeploymentId
    content: bytes | None
    desired: Desired | None
    values: MergedValues


@dataclass(frozen=True, slots=True)
class GitWriter:
    """The ports needed to write to the deployments repository."""

    store: Store
    git: GitSource
    index: Index
    calls: SiteMessages
    ids: Ids
    in_thread: InThread = run_sync

    async def write(
        self, decide: Decide, *, author: str, known: Mapping[DeploymentId, Desired] | None = None
    ) -> Commit | None:
        """Pushes the changes of `decide` on top of the newest commit, which is indexed before; indexes the result,
        and notifies the sites. None when there is nothing to change.

        Raises with nothing pushed: HistoryRewritten, GitUnavailable, and the errors of `decide`. `known`, filled by
        `decide`, saves parsing what was just rendered.
        """

        async def decide_on_shown(head: Commit | None) -> Proposal:
            await self.index.follow_base(head)
            return await decide(head)

        commit = await self.git.commit(decide_on_shown, author=author)
        if commit is not None:
            await self.index.follow(commit, known=known)
            self.calls.tell(commit)
        return commit


async def deploy(request: DeployRequest, caller: Caller, git_writer: GitWriter) -> Deployed:
    """Returns when the commit is pushed and indexed. Raises with nothing written."""
    async with git_writer.store.read() as reader:
        resolved = await resolve(reader, request)
    return await write_targets(resolved, RolloutId(git_writer.ids.new()), git_writer, author=caller.name)


async def write_targets(
    resolved: Resolved, rollout_id: RolloutId, git_writer: GitWriter, *, author: str, along: "Along | None" = None
) -> Deployed:
    """One commit with the files of all targets, and with the changes of `along`."""
    fresh = {target.site: DeploymentId(git_writer.ids.new()) for target in resolved.targets}
    known: dict[DeploymentId, Desired] = {}
    deployed: Deployed | None = None

    async def decide(head: Commit | None) -> Proposal:
        nonlocal deployed
        async with git_writer.store.read() as reader:
            merged = await merge_targets(reader, git_writer.git, head, resolved, in_thread=git_writer.in_thread)
        present = merged.present
        ids = {site: present[site].id if site in present else new for site, new in fresh.items()}
        written = await git_writer.in_thread(write_files, merged, ids, rollout_id, author)
        known.clear()
        known.update({each.deployment_id: each.desired for each in written if each.desired is not None})
        deployed = _deployed(written, present, rollout_id, head)
        changes = [
            Change(deployment_path(each.target.site, each.deployment_id), each.content)
            for each in written
            if each.content is not None
        ]
        others = await along() if along is not None else ()
        sites = [each.target.site for each in written if each.content is not None]
        markers = await _missing_markers(git_writer.git, head, sites) if sites else []
        paths = {each.path for each in markers}
        await check_folders(git_writer, head, [site for site in sites if marker_path(site) in paths])
        return Proposal([*markers, *changes, *others], _message(resolved, ids, rollout_id))

    commit = await git_writer.write(decide, author=author, known=known)
    assert deployed is not None, "`decide` runs before every commit"
    if commit is None:
        return deployed
    log.info(
        "deployment written to git",
        app=resolved.record.app_name,
        version=resolved.app.version,
        sites=len(known),
        commit=commit[:12],
        by=author,
    )
    return replace(deployed, commit=commit, rollout_id=rollout_id)


def _deployed(
    written: Sequence[Written], present: Mapping[SiteName, Deployment], rollout_id: RolloutId, head: Commit | None
) -> Deployed:
    """The result when nothing needs to be written."""
    rollouts = {row.rollout_id for row in present.values()}
    same = rollouts.pop() if len(rollouts) == 1 else None
    ids = tuple(each.deployment_id for each in written)
    unchanged = tuple(each.deployment_id for each in written if each.content is None)
    changed_values = [(each.target.site, each.values) for each in written if each.values.kept or each.values.dropped]
    return Deployed(same or rollout_id, ids, head or Commit(""), unchanged, tuple(changed_values[:LISTED_MAX]))


async def delete(
    text: str, caller: Caller, git_writer: GitWriter, *, remove_data: bool = False
) -> tuple[Deployment, Commit]:
    """Removes a deployment's file; what runs is removed by its site, and its data where the commit says so."""
    async with git_writer.store.read() as reader:
        row = await find_deployment(reader, text)

    async def decide(head: Commit | None) -> Proposal:
        async with git_writer.store.read() as reader:
            check_deletable(await find_deployment(reader, row.id))
        message = f"delete {row.name} from {row.site}\n\n{row.site}/{row.id}"
        message += f"\n\n{data_trailer(row.id)}" if remove_data else ""
        return Proposal([Change(deployment_path(row.site, row.id), None)], message)

    commit = await git_writer.write(decide, author=caller.name)
    if commit is None:
        raise Conflict(f'The file of "{row.name}" is already gone from Git.')
    log.info("deployment deleted from git", deployment=row.id, name=row.name, site=row.site, by=caller.name)
    return row, commit


async def ask_again(text: str, mark: Mark, reason: str, caller: Caller, git_writer: GitWriter) -> RepeatedDeployment:
    """Requests a retry or restart of a deployment, by marking its file."""
    async with git_writer.store.read() as reader:
        row = await find_deployment(reader, text)
    said = mark_text(git_writer.ids.new(), caller.name)
    content = b""

    async def decide(head: Commit | None) -> Proposal:
        nonlocal content
        async with git_writer.store.read() as reader:
            now = await find_deployment(reader, row.id)
            check_deletable(now)
            if mark == "retry" and not await failed_of(reader, [now]):
                raise Conflict(
                    f'"{row.name}" at site "{row.site}" has not failed: there is nothing to try again.',
                    hint=f"Restart it:  homeport deployments restart {row.name}@{row.site}",
                )
        path = deployment_path(now.site, now.id)
        files = (
            [] if head is None else await git_writer.git.files(head, site_folder(now.site), size_max=FILE_SIZE_MAX)
        )
        found = next((file.content for file in files if file.path == path), None)
        if found is None:
            raise Conflict(f"{path} is not in Git any more.")
        content = with_mark(found, path, now.site, mark, said)
        return Proposal(
            [Change(path, content)], f"{mark} {row.name} at {row.site}\n\n{reason}\n\n{row.site}/{row.id}"
        )

    commit = await git_writer.write(decide, author=caller.name)
    assert commit is not None, "no two marks are the same"
    log.info("operator request written to git", request=mark, deployment=row.id, site=row.site, by=caller.name)
    return RepeatedDeployment(row, digest_of_bytes(content), commit)


def check_deletable(row: Deployment) -> None:
    if row.archived_at is not None:
        raise NotFound(
            f'"{row.name}" at site "{row.site}" was deleted at {row.archived_at:%Y-%m-%d %H:%M:%S} UTC.',
            hint=f"Data that it left goes when {row.name} is deployed again and deleted with  --remove-data .",
        )
    if not row.wanted:
        raise Conflict(
            f'"{row.name}" at site "{row.site}" is being deleted already.',
            hint=f"Watch it:  homeport deployments watch {row.id[:8]}",
        )


class FolderLost(Conflict):
    """A site's folder in Git has lost its marker, and with it perhaps all that is wanted there."""

    code = "folder-lost"


async def check_folders(git_writer: GitWriter, head: Commit | None, unmarked: Sequence[SiteName]) -> None:
    """Raises FolderLost for a folder without its own marker where deployments exist: a new marker would make it
    authoritative, and whatever was lost with the old one would be removed from the site."""
    if not unmarked:
        return
    async with git_writer.store.read() as reader:
        where = DeploymentFilter().within(unmarked) if len(unmarked) <= NAMED_MAX else DeploymentFilter()
        rows = await reader.deployments(where)
    lost = next((row.site for row in rows if row.wanted and row.site in set(unmarked)), None)
    if lost is None and head is not None:
        lost = await _lost_unseen(git_writer, head, unmarked)
    if lost is not None:
        raise FolderLost(
            f"{marker_path(lost)} is gone from Git or names another site; nothing was written.",
            hint=f"Bring the folder  {site_folder(lost)}  back, with its marker; or push the marker alone, with the"
            f" line `site: {lost}`, if nothing in it is wanted any more.",
        )


async def _lost_unseen(git_writer: GitWriter, head: Commit, unmarked: Sequence[SiteName]) -> SiteName | None:
    """A site whose folder had its marker and valid deployments that this database has never had: they were lost
    before it looked, and whoever removes them on purpose would have it look first."""
    git, by_path = git_writer.git, {marker_path(site): site for site in unmarked}
    seen: dict[DeploymentId, SiteName] = {}
    for path, commits in (await git.before_changes(head, ROOT, by_path.keys())).items():
        site = by_path[path]
        for commit in commits:
            try:
                files = await git.files(commit, site_folder(site), size_max=FILE_SIZE_MAX)
            except TooLarge:
                continue  # A folder that was never read had nothing that could be lost.
            if is_marked(site, files):
                snapshot = await git_writer.in_thread(partial(read_snapshot, site, commit, files, {}))
                seen.update(dict.fromkeys(snapshot.desired, site))
                break
    async with git_writer.store.read() as reader:
        known = {row.id for row in await reader.deployments_by_ids(sorted(seen))} if seen else set()
    return next((site for id_, site in sorted(seen.items()) if id_ not in known), None)


async def mark_site(site: SiteName, git_writer: GitWriter, caller: Caller) -> None:
    """Writes the site's marker, so that its folder is authoritative even while it is empty. A folder that lost its
    marker is left to an operator."""
    try:
        await mark_sites([site], git_writer, caller)
    except (FolderLost, HistoryRewritten) as error:
        log.warning("site marker write failed", site=site, why=str(error))


async def mark_sites(sites: Sequence[SiteName], git_writer: GitWriter, caller: Caller) -> None:
    """The markers of all of them in one commit. Raises FolderLost, where any has lost its marker, and
    HistoryRewritten."""

    async def decide(head: Commit | None) -> Proposal:
        missing = await _missing_markers(git_writer.git, head, sites)
        paths = {each.path for each in missing}
        await check_folders(git_writer, head, [site for site in sites if marker_path(site) in paths])
        return Proposal(missing, f"join {_listed(sites)}")

    await git_writer.write(decide, author=caller.name)


Along = Callable[[], Awaitable[Sequence[Change]]]
"""Further changes of the same commit, decided once the parent commit is indexed. May raise: then nothing is
written."""


def write_files(
    merged: MergedRequest, ids: Mapping[SiteName, DeploymentId], rollout_id: RolloutId, author: str
) -> list[Written]:
    """The files of all sites; off the event loop, because there may be thousands. A file that already matches but
    whose deployment has failed gets a retry mark."""
    written = []
    writer = merged.resolved.writer()
    for target in merged.resolved.targets:
        site, deployment_id, values = target.site, ids[target.site], merged.values[target.site]
        before = merged.files.get(deployment_id)
        content = writer.render(target, values, deployment_id, rollout_id, before)
        desired = writer.desired(site, values, deployment_id, content)
        if before is not None and asks_the_same(before, desired):
            if deployment_id not in merged.failed:
                written.append(Written(target, deployment_id, None, None, values))
                continue
            content = with_mark(content, desired.path, site, "retry", mark_text(rollout_id, author))
            desired = parse_deployment(content, desired.path, site)
        written.append(Written(target, deployment_id, content, desired, values))
    return written


async def _missing_markers(git: GitSource, head: Commit | None, sites: Sequence[SiteName]) -> list[Change]:
    markers: dict[str, TreeFile] = {}
    if head is not None:
        for folder in {site_folder(site) for site in sites} if len(sites) <= LISTED_MAX else {"deployments"}:
            markers.update({file.path: file for file in await git.files(head, folder, size_max=FILE_SIZE_MAX)})
    return [
        Change(marker_path(site), render_marker(site))
        for site in sites
        if marker_path(site) not in markers or not is_marked(site, [markers[marker_path(site)]])
    ]


def _message(resolved: Resolved, ids: dict[SiteName, DeploymentId], rollout_id: RolloutId) -> str:
    where = _listed(list(ids))
    listed = "\n".join(f"{site}/{deployment_id}" for site, deployment_id in list(ids.items())[:LISTED_MAX])
    title = f"deploy {resolved.record.app_name} {resolved.app.version} to {where}"
    return f"{title}\n\n{listed}\n\nRollout: {rollout_id}"


def _listed(sites: Sequence[SiteName]) -> str:
    return ", ".join(sites[:3]) + (f" and {len(sites) - 3} more" if len(sites) > 3 else "")
