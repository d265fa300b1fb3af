"""Adds one description to the catalog: what `homeport deploy ./compose.yaml` does before it deploys.

A version never changes. Where none is given, existing content keeps its version and other content gets the next one,
decided in the transaction that writes it: two people who deploy at once get one version each.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio.to_thread

from homeport.catalog.description import Description, parse_description
from homeport.catalog.documents import dump
from homeport.core.model.caller import Caller
from homeport.core.values.versions import newest_first
from homeport.errors import Conflict
from homeport.fleet.central.apps import (
    DESCRIPTION_FILE,
    AppQuery,
    AppsAdded,
    FoundApp,
    app_record,
    check_query,
    write_apps,
)
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import AppRecord, Clock, Ids, Reader, Store, Transaction

FIRST_VERSION: Final = "1.0.0"
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")

log = get_log("homeport.fleet.central.registering")


@dataclass(frozen=True, slots=True)
class NewApp:
    category: str
    app_name: str
    content: bytes
    """A margo.yaml. `version`, where given, replaces its version."""
    version: str | None = None
    """None for the next one."""


async def register_app(new: NewApp, caller: Caller, *, store: Store, clock: Clock, ids: Ids) -> AppsAdded:
    """Raises InvalidInput for the description; Conflict where the name or the version is used by something else."""
    description = await _read(new)

    async def write(tx: Transaction) -> AppsAdded:
        chosen = await _choose(tx, new, description)
        if isinstance(chosen, AppRecord):
            return AppsAdded((), (chosen,))
        record = app_record(chosen, repository="", commit=None, caller=caller, clock=clock, ids=ids)
        return await write_apps(tx, [record], {record.id: chosen.description})

    added = await store.write(write)
    for app in added.added:
        log.info("app registered", app=app.app_name, version=app.version, category=app.category, by=caller.name)
    return added


async def unregistered(new: NewApp, caller: Caller, *, store: Store, clock: Clock, ids: Ids) -> AppRecord:
    """What `register_app` would add to the catalog, or finds there; nothing is written. For plans."""
    description = await _read(new)
    async with store.read() as reader:
        chosen = await _choose(reader, new, description)
    if isinstance(chosen, AppRecord):
        return chosen
    return app_record(chosen, repository="", commit=None, caller=caller, clock=clock, ids=ids)


def next_version(versions: Sequence[str]) -> str:
    """The next patch of the newest version; the first version where none can be incremented."""
    for version in newest_first(versions, str):
        found = _NUMBERS.match(version)
        if found is not None:
            # A pre-release is followed by its release.
            return (
                found[0] if version[found.end() :].startswith("-") else f"{found[1]}.{found[2]}.{int(found[3]) + 1}"
            )
    return FIRST_VERSION


async def _read(new: NewApp) -> Description:
    check_query(AppQuery(new.category, new.app_name, new.version))

    def read() -> Description:
        return parse_description(new.content, DESCRIPTION_FILE, category=new.category)

    return await anyio.to_thread.run_sync(read)


async def _choose(reader: Reader, new: NewApp, description: Description) -> AppRecord | FoundApp:
    """The version that has this content already, or what is to be added."""
    named = await reader.apps(app_name=new.app_name)
    others = sorted({app.category for app in named if app.category != new.category})
    if others:
        raise Conflict(
            f'The catalog has an app "{new.app_name}" already: {others[0]}/{new.app_name}.',
            hint="Give yours another name with  --app-name NAME .",
        )
    mine = newest_first(named, lambda app: app.version)
    same = next((app for app in mine if _content(app.descriptor) == _content(description.descriptor)), None)
    if same is not None and new.version in (None, same.version):
        return same
    version = new.version or next_version([app.version for app in mine])
    if any(app.version == version for app in mine):
        raise Conflict(
            f"{new.app_name} {version} is in the catalog with other content.",
            hint="A version never changes: leave --app-version out to get the next one.",
        )
    content = dump(_with_version(description.descriptor, version))
    renamed = replace(description.app, version=version)
    return FoundApp(
        new.category,
        new.app_name,
        version,
        Description(renamed, _with_version(description.descriptor, version)),
        content,
    )


def _content(descriptor: Mapping[str, Any]) -> Mapping[str, Any]:
    return _with_version(descriptor, "")


def _with_version(descriptor: Mapping[str, Any], version: str) -> dict[str, Any]:
    return {**descriptor, "metadata": {**descriptor["metadata"], "version": version}}
