"""Determines the values of every deployment that a request updates, from the current files in Git."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from homeport.catalog.deployment import deployment_path, moved, parse_deployment
from homeport.catalog.description import app_of
from homeport.core.model.app import App
from homeport.core.model.deployment import Desired, digest_of_bytes
from homeport.core.model.event import Deployment
from homeport.core.parameters import check_immutable
from homeport.core.update_values import MergedValues, PreviousDeployment, merge_values
from homeport.errors import InvalidInput, PermanentError, Problem
from homeport.fleet.central.resolve import Resolved, present_by_site
from homeport.fleet.central.secrets import check_secrets
from homeport.fleet.shared.snapshot import FILE_SIZE_MAX, site_folder
from homeport.lazy_dataclass import dataclass
from homeport.ports import GitSource, InThread, Reader
from homeport.vocabulary import Commit, DeploymentId, SiteName, State

SITES_LOOKED_AT_MAX = 50
"""How many sites are read one by one; with more, what costs a query each is left out."""


@dataclass(frozen=True, slots=True)
class MergedRequest:
    """The outcome of a request on one commit."""

    resolved: Resolved
    present: Mapping[SiteName, Deployment]
    """The deployments that it updates."""
    values: Mapping[SiteName, MergedValues]
    """Equal ones are one object."""
    files: Mapping[DeploymentId, Desired] = field(default_factory=dict)
    """The current file in Git, where it is valid."""
    failed: frozenset[DeploymentId] = frozenset()
    """Those whose file is not applied because it failed, or was rolled back."""


async def merge_targets(
    reader: Reader, git: GitSource, commit: Commit | None, resolved: Resolved, *, in_thread: InThread
) -> MergedRequest:
    """Raises Conflict or InvalidInput with every problem, by the request's fields."""
    present = await present_by_site(reader, resolved)
    rows = list(present.values())
    files = await present_files(git, commit, rows, in_thread=in_thread)
    before = files | await _last_good(reader, [row for row in rows if row.id not in files])
    apps = await _apps(reader, list(before.values()))
    found = await in_thread(_merge_all, resolved, present, before, apps)
    groups: dict[int, list[SiteName]] = {}
    for site, values in found.items():
        groups.setdefault(id(values), []).append(site)
    for sites in groups.values():
        await check_secrets(reader, found[sites[0]].values, sites)
    return MergedRequest(resolved, present, found, files, await failed_of(reader, rows))


async def failed_of(reader: Reader, rows: Sequence[Deployment]) -> frozenset[DeploymentId]:
    """Those whose file is not applied because it failed, or was rolled back."""
    wanted = {row.id: row.revision for row in rows}
    instances = await reader.instances(list(wanted)) if wanted else ()
    return frozenset(
        item.deployment_id
        for item in instances
        if item.rejected_revision == wanted[item.deployment_id]
        or (item.state is State.FAILED and item.revision in (wanted[item.deployment_id], None))
    )


async def present_files(
    git: GitSource, commit: Commit | None, rows: Sequence[Deployment], *, in_thread: InThread
) -> dict[DeploymentId, Desired]:
    """The parsed files of these deployments; without invalid ones. Of files that differ only in id and site, as those
    of a rollout do, one is parsed."""
    if commit is None or not rows:
        return {}
    wanted = {deployment_path(row.site, row.id): row for row in rows}
    folders = sorted({site_folder(row.site) for row in rows}) if len(rows) <= SITES_LOOKED_AT_MAX else ["deployments"]
    contents: list[tuple[Deployment, bytes]] = []
    for folder in folders:
        for file in await git.files(commit, folder, size_max=FILE_SIZE_MAX):
            if file.path in wanted:
                contents.append((wanted[file.path], file.content))
    return await in_thread(_parse_all, contents)


def _parse_all(contents: Sequence[tuple[Deployment, bytes]]) -> dict[DeploymentId, Desired]:
    parsed: dict[bytes, Desired] = {}
    found: dict[DeploymentId, Desired] = {}
    for row, content in contents:
        own = f"id: {row.id}\n".encode(), f"  deviceId: {row.site}\n".encode()
        alike = all(content.count(part) == 1 for part in own) and b"&" not in content
        key = content.replace(own[0], b"", 1).replace(own[1], b"", 1) if alike else content
        try:
            if key not in parsed:
                parsed[key] = parse_deployment(content, deployment_path(row.site, row.id), row.site)
        except PermanentError:
            continue  # the intent of an invalid file is unknown
        found[row.id] = moved(parsed[key], row.site, row.id, digest_of_bytes(content))
    return found


async def _last_good(reader: Reader, rows: Sequence[Deployment]) -> dict[DeploymentId, Desired]:
    """For a deployment whose current file is invalid: its last valid one."""
    found = {}
    for row in rows:
        kept = next((each for each in await reader.revisions(row.id) if each.revision == row.revision), None)
        if kept is not None:
            found[row.id] = parse_deployment(kept.content, deployment_path(row.site, row.id), row.site)
    return found


async def _apps(reader: Reader, files: Sequence[Desired]) -> dict[tuple[str, str, str], App]:
    """The app versions that the files were made from, as far as they are in the catalog."""
    wanted = {_app_key(file) for file in files}
    return {
        key: app_of(record.descriptor, category=record.category)
        for name in sorted({name for _, name, _ in wanted})
        for record in await reader.apps(app_name=name)
        if (key := (record.category, record.app_name, record.version)) in wanted
    }


def _app_key(file: Desired) -> tuple[str, str, str]:
    return file.app_category, file.app_name, file.app_version


def _merge_all(
    resolved: Resolved,
    present: Mapping[SiteName, Deployment],
    before: Mapping[DeploymentId, Desired],
    apps: Mapping[tuple[str, str, str], App],
) -> dict[SiteName, MergedValues]:
    cache: dict[str, MergedValues] = {}
    found: dict[SiteName, MergedValues] = {}
    problems: list[Problem] = []
    for target in resolved.targets:
        row = present.get(target.site)
        file = before.get(row.id) if row is not None else None
        key = repr((target.nodes, file and _values(file)))
        try:
            if key not in cache:
                before_it = None if file is None else PreviousDeployment(file, apps.get(_app_key(file)))
                cache[key] = merge_values(resolved.app, resolved.requested_for(target), before_it)
        except InvalidInput as error:
            problems += error.problems
            continue
        values = cache[key]
        if row is not None:
            problems += check_immutable(resolved.app, row.parameters, values.values)
        found[target.site] = values
    if problems:
        raise InvalidInput(problems=list(dict.fromkeys(problems)))
    return found


def _values(file: Desired) -> tuple[object, ...]:
    """All values that an update can keep from a file."""
    return (
        _app_key(file),
        file.profile_id,
        file.parameters,
        file.placement,
        file.policy,
        (file.remove_images, file.restart),
    )
