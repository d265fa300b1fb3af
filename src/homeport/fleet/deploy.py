"""Writes what is wanted into Git: one commit for any number of sites.

The decision is taken on the very commit it is built on, each time anew when somebody else was faster, so two
requests can never give one name to two deployments.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from anyio.to_thread import run_sync

from homeport.catalog.deployment import deployment_path, marker_path
from homeport.catalog.marker import render_marker
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.errors import Conflict, GitUnavailable, NotFound
from homeport.fleet.calls import Calls
from homeport.fleet.index import Index
from homeport.fleet.overview import find_deployment
from homeport.fleet.resolve import DeployRequest, Resolved, Target, present_by_site, resolve
from homeport.fleet.snapshot import FILE_SIZE_MAX, site_folder
from homeport.ports import Change, DeploymentFilter, GitSource, Ids, InThread, Store
from homeport.vocabulary import Commit, DeploymentId, RolloutId, SiteName

LISTED_MAX: Final = 100
"""How many deployments a commit message names."""
OUTRUN_MAX: Final = 20

log = structlog.get_logger("homeport.fleet.deploy")


@dataclass(frozen=True, slots=True)
class Deployed:
    rollout_id: RolloutId
    deployment_ids: tuple[DeploymentId, ...]
    """In the order of the targets."""
    commit: Commit
    unchanged: tuple[DeploymentId, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What one site's file shall be. `content` is None where it already is as asked for."""

    target: Target
    deployment_id: DeploymentId
    content: bytes | None
    desired: Desired | None


@dataclass(frozen=True, slots=True)
class Desk:
    """The ports that writing to the deployments repository needs."""

    store: Store
    git: GitSource
    index: Index
    calls: Calls
    ids: Ids
    in_thread: InThread = run_sync


async def deploy(request: DeployRequest, caller: Caller, desk: Desk) -> Deployed:
    """Returns when the commit is pushed and shown. Raises with nothing written."""
    async with desk.store.read() as reader:
        resolved = await resolve(reader, request)
    return await write_targets(resolved, RolloutId(desk.ids.new()), desk, author=caller.name)


async def write_targets(
    resolved: Resolved, rollout_id: RolloutId, desk: Desk, *, author: str, along: "Along | None" = None
) -> Deployed:
    """One commit with the files of all targets, and with what goes along with them."""
    fresh = {target.site: DeploymentId(desk.ids.new()) for target in resolved.targets}
    for _ in range(OUTRUN_MAX):
        try:
            return await _commit(desk, resolved, fresh, rollout_id, author=author, along=along)
        except _Outrun:
            continue
    raise GitUnavailable("Others are deploying the same names to the same sites without a pause; try again.")


async def delete(text: str, caller: Caller, desk: Desk) -> tuple[Deployment, Commit]:
    """Removes a deployment's file; what runs is removed by its site."""
    async with desk.store.read() as reader:
        row = await find_deployment(reader, text)

    async def decide(head: Commit | None) -> Sequence[Change]:
        if head is not None:
            await desk.index.follow(head)
        async with desk.store.read() as reader:
            check_deletable(await find_deployment(reader, row.id))
        return [Change(deployment_path(row.site, row.id), None)]

    message = f"delete {row.name} from {row.site}\n\n{row.site}/{row.id}"
    commit = await desk.git.commit(decide, message=message, author=caller.name)
    if commit is None:
        raise Conflict(f'The file of "{row.name}" is already gone from Git.')
    await desk.index.follow(commit)
    desk.calls.tell(commit)
    log.info("deployment deleted from git", deployment=row.id, name=row.name, site=row.site, by=caller.name)
    return row, commit


def check_deletable(row: Deployment) -> None:
    if row.archived_at is not None:
        raise NotFound(f'"{row.name}" at site "{row.site}" was deleted at {row.archived_at:%Y-%m-%d %H:%M:%S} UTC.')
    if not row.wanted:
        raise Conflict(
            f'"{row.name}" at site "{row.site}" is being deleted already.',
            hint=f"Watch it:  homeport deployments watch {row.id[:8]}",
        )


class FolderLost(Conflict):
    """A site's folder in Git has lost its marker, and with it perhaps all that is wanted there."""

    code = "folder-lost"


async def check_folders(desk: Desk, unmarked: Sequence[SiteName]) -> None:
    """Raises FolderLost for a folder without its marker where something is wanted: with a new marker it would count
    as real, and whatever was lost with the old one would be removed from the site."""
    if not unmarked:
        return
    async with desk.store.read() as reader:
        rows = await reader.deployments(DeploymentFilter(site=unmarked[0] if len(unmarked) == 1 else None))
    lost = next((row.site for row in rows if row.wanted and row.site in set(unmarked)), None)
    if lost is not None:
        raise FolderLost(
            f"{marker_path(lost)} is gone from Git, so nobody can tell what is wanted there; nothing was written.",
            hint=f"Bring the folder  {site_folder(lost)}  back, with its marker.",
        )


async def mark_site(site: SiteName, desk: Desk, caller: Caller) -> None:
    """Writes the site's marker, so that its folder counts as real even while it is empty. A folder that was lost is
    left to a person."""

    async def decide(head: Commit | None) -> Sequence[Change]:
        missing = await _missing_markers(desk.git, head, [site])
        try:
            await check_folders(desk, [site] if missing else [])
        except FolderLost as error:
            log.warning("marker not written", site=site, why=str(error))
            return []
        return missing

    commit = await desk.git.commit(decide, message=f"join {site}", author=caller.name)
    if commit is not None:
        await desk.index.follow(commit)
        desk.calls.tell(commit)


Along = Callable[[], Awaitable[Sequence[Change]]]
"""Further changes of the same commit, decided when the commit it is built on is shown. May raise: then nothing is
written."""


class _Outrun(Exception):
    """Somebody else was faster: the ids that the commit's message names are no longer the right ones."""


def _ids(present: dict[SiteName, Deployment], fresh: dict[SiteName, DeploymentId]) -> dict[SiteName, DeploymentId]:
    return {site: present[site].id if site in present else new for site, new in fresh.items()}


async def _commit(
    desk: Desk,
    resolved: Resolved,
    fresh: dict[SiteName, DeploymentId],
    rollout_id: RolloutId,
    *,
    author: str,
    along: Along | None,
) -> Deployed:
    async with desk.store.read() as reader:
        ids = _ids(await present_by_site(reader, resolved), fresh)
    written: list[Written] = []
    base: Commit | None = None
    present: dict[SiteName, Deployment] = {}

    async def decide(head: Commit | None) -> Sequence[Change]:
        nonlocal written, base, present
        base = head
        if head is not None:
            await desk.index.follow(head)
        async with desk.store.read() as reader:
            present = await present_by_site(reader, resolved)
        if _ids(present, fresh) != ids:
            raise _Outrun
        written = await desk.in_thread(write_files, resolved, ids, present, rollout_id)
        changes = [
            Change(deployment_path(each.target.site, each.deployment_id), each.content)
            for each in written
            if each.content is not None
        ]
        others = await along() if along is not None else ()
        if not changes:
            return others
        sites = [each.target.site for each in written if each.content is not None]
        markers = await _missing_markers(desk.git, head, sites)
        await check_folders(desk, [site for site in sites if marker_path(site) in {each.path for each in markers}])
        return [*markers, *changes, *others]

    commit = await desk.git.commit(decide, message=_message(resolved, ids, rollout_id), author=author)
    unchanged = tuple(each.deployment_id for each in written if each.content is None)
    if commit is None:
        assert base is not None, "nothing to change, and no commit that says so"
        before = {row.rollout_id for row in present.values()}
        same = before.pop() if len(before) == 1 else None
        return Deployed(same or rollout_id, tuple(ids.values()), base, unchanged)
    known = {each.deployment_id: each.desired for each in written if each.desired is not None}
    await desk.index.follow(commit, known=known)
    desk.calls.tell(commit)
    log.info(
        "deployment written to git",
        app=resolved.record.app_name,
        version=resolved.app.version,
        sites=len(known),
        commit=commit[:12],
        by=author,
    )
    return Deployed(rollout_id, tuple(ids.values()), commit, unchanged)


def write_files(
    resolved: Resolved,
    ids: dict[SiteName, DeploymentId],
    present: dict[SiteName, Deployment],
    rollout_id: RolloutId,
) -> list[Written]:
    """The files of all sites; off the event loop, for there may be thousands."""
    written = []
    writer = resolved.writer()
    like: Desired | None = None
    for target in resolved.targets:
        deployment_id = ids[target.site]
        before = present.get(target.site)
        if before is not None and before.problem is None:
            same = writer.render(target, deployment_id, before.rollout_id)
            if digest_of_bytes(same) == before.revision:
                written.append(Written(target, deployment_id, None, None))
                continue
        content = writer.render(target, deployment_id, rollout_id)
        like = resolved.desired(target, deployment_id, content, like)
        written.append(Written(target, deployment_id, content, like))
    return written


async def _missing_markers(git: GitSource, head: Commit | None, sites: Sequence[SiteName]) -> list[Change]:
    present: set[str] = set()
    if head is not None:
        for folder in {site_folder(site) for site in sites} if len(sites) <= LISTED_MAX else {"deployments"}:
            present.update(file.path for file in await git.files(head, folder, size_max=FILE_SIZE_MAX))
    return [Change(marker_path(site), render_marker(site)) for site in sites if marker_path(site) not in present]


def _message(resolved: Resolved, ids: dict[SiteName, DeploymentId], rollout_id: RolloutId) -> str:
    sites = list(ids)
    where = ", ".join(sites[:3]) + (f" and {len(sites) - 3} more" if len(sites) > 3 else "")
    listed = "\n".join(f"{site}/{deployment_id}" for site, deployment_id in list(ids.items())[:LISTED_MAX])
    title = f"deploy {resolved.record.app_name} {resolved.app.version} to {where}"
    return f"{title}\n\n{listed}\n\nRollout: {rollout_id}"
