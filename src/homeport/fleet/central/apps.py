"""The catalog of apps: read from registries, stored, found by name.

A registry is a tree `<category>/<app>/<version>/margo.yaml`, wherever it comes from. Either everything requested is
valid and added together, or nothing is.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import anyio.to_thread

from homeport.catalog.description import Description, parse_description
from homeport.core.access.reach import may_reach_private
from homeport.core.model.caller import Caller
from homeport.core.model.event import Deployment, NewEvent
from homeport.core.redaction import redact
from homeport.core.values.addresses import git_host, is_private
from homeport.core.values.versions import newest_first
from homeport.errors import Conflict, InvalidInput, NotAuthorized, NotFound, Problem, TooLarge
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.revisions import choose_revision
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    AppRecord,
    Clock,
    ComponentRecord,
    DeploymentFilter,
    Ids,
    ProfileRecord,
    Reader,
    Store,
    Transaction,
    TreeFile,
)
from homeport.vocabulary import AppId, Commit, Digest, EventKind

DESCRIPTION_FILE: Final = "margo.yaml"
DESCRIPTION_BYTES_MAX: Final = 1024 * 1024
APPS_MAX: Final = 10_000
"""Maximum per registry: limits what one request may make us read."""
USERS_SHOWN_MAX: Final = 5
_FOLDER_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}$")

log = get_log("homeport.fleet.central.apps")


class AppTree(Protocol):
    """A registry, opened. Paths are relative to its root and never leave it."""

    def commit_of(self, path: str) -> Commit | None:
        """What names exactly this content: a commit of Git, the digest of a package; None for a plain folder."""
        ...

    async def paths(self) -> Sequence[str]: ...
    async def file(self, path: str, *, size_max: int) -> TreeFile: ...


OpenAppTree = Callable[[str, str | None], AbstractAsyncContextManager[AppTree]]
"""repository, branch. Raises NotFound, InvalidInput or GitUnavailable."""


@dataclass(frozen=True, slots=True)
class AppQuery:
    category: str | None = None
    app_name: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class AppsAdded:
    added: tuple[AppRecord, ...]
    unchanged: tuple[AppRecord, ...]


@dataclass(frozen=True, slots=True)
class FoundApp:
    """One app version of a registry, validated."""

    category: str
    app_name: str
    version: str
    description: Description
    source: bytes


async def add_apps(
    repository: str,
    branch: str | None,
    query: AppQuery,
    caller: Caller,
    *,
    open_tree: OpenAppTree,
    store: Store,
    clock: Clock,
    ids: Ids,
) -> AppsAdded:
    """Raises InvalidInput with every problem of every file; Conflict where a version exists with other content."""
    check_query(query)
    shown = redact(repository)
    async with open_tree(repository, branch) as tree:
        paths = _descriptions(await tree.paths(), query, shown)
        files = [await tree.file(path, size_max=DESCRIPTION_BYTES_MAX) for path in paths]
        commits = [tree.commit_of(path) for path in paths]
    found = await anyio.to_thread.run_sync(_validate, files)
    records = [
        app_record(each, repository=shown, commit=commit, caller=caller, clock=clock, ids=ids)
        for each, commit in zip(found, commits, strict=True)
    ]
    descriptions = {record.id: each.description for record, each in zip(records, found, strict=True)}

    async def write(tx: Transaction) -> AppsAdded:
        return await write_apps(tx, records, descriptions)

    added = await store.write(write)
    for app in added.added:
        log.info("app added", app=app.app_name, version=app.version, category=app.category, by=caller.name)
    return added


def check_reach(repository: str, caller: Caller) -> None:
    """Raises NotAuthorized where the response alone would reveal something about central's machine or network: a
    local folder, or an address that is not on the internet."""
    if may_reach_private(caller):
        return
    host = git_host(repository)
    if host is None or is_private(host):
        what = "a folder of central's machine" if host is None else f"the private address {host}"
        raise NotAuthorized(
            f"Only an administrator may add apps from {what}.",
            hint="Give a Git URL with a public host, or ask an administrator to add them.",
        )


async def find_app(reader: Reader, *, app_id: str | None, query: AppQuery) -> AppRecord:
    """By id, or by name with category and version where needed. The newest version is the default."""
    if app_id is not None:
        app = await reader.app(AppId(app_id))
        if app is None:
            raise NotFound(f'There is no app with the id "{app_id}".', hint="List them:  homeport apps list")
        return app
    name = query.app_name
    if name is None:
        raise InvalidInput(problems=[Problem("app_name", "is missing: name the app by app_name or app_id.")])
    named = await reader.apps(app_name=name)
    if not named:
        known = [app.app_name for app in await reader.apps()]
        raise NotFound(f'There is no app "{name}".', hint=did_you_mean(name, known, "homeport apps list"))
    return _choose(name, named, query)


def _choose(name: str, named: Sequence[AppRecord], query: AppQuery) -> AppRecord:
    fitting = [app for app in named if query.category in (None, app.category)]
    if not fitting:
        has = ", ".join(sorted({app.category for app in named}))
        raise NotFound(f'There is no app "{name}" in category "{query.category}"; it is in {has}.')
    categories = sorted({app.category for app in fitting})
    if len(categories) > 1:
        raise Conflict(
            f'"{name}" is in several categories: {", ".join(categories)}.', hint="Say which one with  category ."
        )
    ordered = newest_first(fitting, lambda app: app.version)
    if query.version is None:
        return ordered[0]
    exact = next((app for app in ordered if app.version == query.version), None)
    if exact is None:
        has = ", ".join(app.version for app in ordered[:10])
        raise NotFound(f'There is no version "{query.version}" of app "{name}".', hint=f"Available versions: {has}.")
    return exact


async def remove_app(app_id: AppId, caller: Caller, *, store: Store, clock: Clock) -> AppRecord:
    """Raises Conflict while a deployment needs this version: Git asks for it, a node runs it, or a rollback would
    bring it back."""
    async with store.read() as reader:
        app = await find_app(reader, app_id=app_id, query=AppQuery())
        _refuse_used(app, await _returning_to(reader, app))

    async def write(tx: Transaction) -> AppRecord:
        app = await find_app(tx, app_id=app_id, query=AppQuery())
        _refuse_used(
            app, {_shown(row): "" for row in await _deployments_of(tx, app) if row.app_version == app.version}
        )
        await tx.remove_app(app.id)
        await tx.append_events([_event(app, EventKind.APP_REMOVED, f"removed by {caller.name}", clock.now())])
        return app

    removed = await store.write(write)
    log.info("app removed", app=removed.app_name, version=removed.version, by=caller.name)
    return removed


def _refuse_used(app: AppRecord, users: Mapping[str, str]) -> None:
    if users:
        shown = [f"{name}{why}" for name, why in sorted(users.items())[:USERS_SHOWN_MAX]]
        more = f" and {len(users) - len(shown)} more" if len(users) > len(shown) else ""
        raise Conflict(
            f"{app.app_name} {app.version} is used by {', '.join(shown)}{more}.",
            hint="Delete these deployments first, or move them to another version.",
        )


async def _deployments_of(reader: Reader, app: AppRecord) -> list[Deployment]:
    return [
        row
        for row in await reader.deployments(DeploymentFilter(app_name=app.app_name))
        if row.wanted and row.app_category in ("", app.category)
    ]


async def _returning_to(reader: Reader, app: AppRecord) -> dict[str, str]:
    """Deployments that Git wants at another version, and that run this one or would go back to it."""
    found: dict[str, str] = {}
    rows = [row for row in await _deployments_of(reader, app) if row.app_version != app.version]
    versions = await reader.versions_kept([row.id for row in rows])
    own = {revision for revision, version in versions.items() if version == app.version}
    if not own:
        return found
    running = {each.deployment_id for each in await reader.instances([row.id for row in rows]) if each.runs(own)}
    for row in rows:
        if row.id in running:
            found[_shown(row)] = ", which still runs it"
        elif await _goes_back_to(reader, row, own):
            found[_shown(row)] = ", which would go back to it"
    return found


async def _goes_back_to(reader: Reader, row: Deployment, own: Collection[Digest]) -> bool:
    kept, history = await reader.revisions(row.id), await reader.history(row.id)
    try:
        return choose_revision(kept, history, None, current=row.revision, name=row.name).revision in own
    except Conflict:
        return False


def _shown(row: Deployment) -> str:
    return f"{row.name}@{row.site}"


async def write_apps(tx: Transaction, records: Sequence[AppRecord], parsed: dict[AppId, Description]) -> AppsAdded:
    """All of them, with their events, or none. Raises Conflict."""
    present = {(app.category, app.app_name, app.version): app for app in await tx.apps()}
    added, unchanged, problems = [], [], []
    for record in records:
        there = present.get((record.category, record.app_name, record.version))
        if there is None:
            await tx.add_app(record, *_parts(record.id, parsed[record.id]))
            added.append(record)
        elif there.source == record.source:
            unchanged.append(there)
        else:
            problems.append(f"{record.category}/{record.app_name}/{record.version}")
    if problems:
        raise Conflict(
            f"Already registered with other content: {', '.join(problems[:10])}.",
            hint="A version never changes: give the new content a new version, or remove the old one first.",
        )
    await tx.append_events(
        [_event(app, EventKind.APP_ADDED, f"added by {app.added_by}", app.added_at) for app in added]
    )
    return AppsAdded(tuple(added), tuple(unchanged))


def check_query(query: AppQuery) -> None:
    """The filters become folder names, so names that could leave the repository are refused, by field."""
    problems = [
        Problem(field, f'"{value[:80]}" is not the name of a folder in a registry.')
        for field, value in (
            ("category", query.category),
            ("app_name", query.app_name),
            ("version", query.version),
        )
        if value is not None and (not _FOLDER_NAME.fullmatch(value) or ".." in value)
    ]
    if problems:
        raise InvalidInput(problems=problems)


def _descriptions(paths: Iterable[str], query: AppQuery, repository: str) -> list[str]:
    """The descriptions that pass the filters, or NotFound with what is missing."""
    parts = [path.split("/") for path in paths]
    wanted = (query.category, query.app_name, query.version)
    below = [
        part
        for part in parts
        if len(part) >= 4 and all(want in (None, has) for want, has in zip(wanted, part[:3], strict=True))
    ]
    found = sorted("/".join(part) for part in below if len(part) == 4 and part[3] == DESCRIPTION_FILE)
    place = "/".join(want or "*" for want in wanted)
    if not found:
        what = f"There is no {place}/{DESCRIPTION_FILE} in {repository}."
        raise NotFound(what, hint=f"A registry has the layout <category>/<app>/<version>/{DESCRIPTION_FILE} .")
    if len(found) > APPS_MAX:
        raise TooLarge(f"{repository} has {len(found)} apps; at most {APPS_MAX} are read at once.")
    return found


def _validate(files: Sequence[TreeFile]) -> list[FoundApp]:
    found: list[FoundApp] = []
    problems: list[Problem] = []
    for file in files:
        category, app_name, version, _ = file.path.split("/")
        if len(file.content) > DESCRIPTION_BYTES_MAX:
            raise TooLarge(f"{file.path} is larger than {DESCRIPTION_BYTES_MAX // 1024} KiB.")
        try:
            description = parse_description(file.content, file.path, category=category)
        except InvalidInput as error:
            problems.extend(error.problems)
            continue
        if description.app.version != version:
            said = f'"{description.app.version}", but its folder says "{version}".'
            problems.append(Problem("metadata.version", f"is {said}", file.path))
        found.append(FoundApp(category, app_name, version, description, file.content))
    if problems:
        raise InvalidInput(problems=problems, hint="Nothing was registered.")
    return found


def app_record(
    found: FoundApp, *, repository: str, commit: Commit | None, caller: Caller, clock: Clock, ids: Ids
) -> AppRecord:
    app = found.description.app
    return AppRecord(
        id=AppId(ids.new()),
        category=found.category,
        app_name=found.app_name,
        version=found.version,
        margo_id=app.margo_id,
        name=app.name,
        vendor=app.vendor,
        description=app.description,
        tags=app.tags,
        descriptor=found.description.descriptor,
        source=found.source,
        repository=repository,
        commit=commit,
        added_at=clock.now(),
        added_by=caller.name,
    )


def _parts(app_id: AppId, description: Description) -> tuple[list[ProfileRecord], list[ComponentRecord]]:
    profiles = description.app.profiles
    return (
        [
            ProfileRecord(app_id, position, profile.id, profile.type, profile.description, profile.device_constraints)
            for position, profile in enumerate(profiles)
        ],
        [
            ComponentRecord(app_id, profile.id, position, component.name, component.properties)
            for profile in profiles
            for position, component in enumerate(profile.components)
        ],
    )


def _event(app: AppRecord, kind: EventKind, what: str, at: datetime) -> NewEvent:
    data = {"app_id": app.id, "app_name": app.app_name, "version": app.version, "category": app.category}
    return NewEvent(kind, at, f"{app.app_name} {app.version} {what}", data=data)
