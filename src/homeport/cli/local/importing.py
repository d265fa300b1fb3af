"""Imports a path or an image as an app: read here, stored in a registry, registered at central."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import Final

from homeport.adapters.files.paths import written_path
from homeport.catalog.documents import dump
from homeport.cli.api.client import Client, Json
from homeport.cli.import_options import ImportOptions
from homeport.cli.local.places import ComponentRegistry, built_in_place, own_registry
from homeport.content.importing.description import CATEGORY, FIRST_VERSION, Imported, render_description
from homeport.content.importing.folders import AskTool, ImportSourceOptions, find_source, import_path
from homeport.core.archive import COMPOSE_FILE
from homeport.errors import Conflict, InvalidInput, NotFound
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import ProfileType

COMPOSE_SIZE_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ImportableApp:
    """An app that is ready to be stored: nothing has been written so far."""

    imported: Imported
    description: Json
    place: ComponentRegistry | None
    """None where there is nothing to store."""
    version: str | None

    @property
    def body(self) -> Json:
        """The body for the server."""
        wanted = {
            "category": CATEGORY,
            "app_name": self.imported.name,
            "description": dump(self.description).decode(),
        }
        return wanted if self.version is None else {**wanted, "version": self.version}

    @property
    def plan_body(self) -> Json:
        """With the compose file: no registry has it yet. What a file beside it says of variables is in the app's
        parameters."""
        content = self.imported.files.get(COMPOSE_FILE, b"")
        is_sent = self.imported.type is ProfileType.COMPOSE and 0 < len(content) <= COMPOSE_SIZE_MAX
        return {**self.body, "compose": content.decode(errors="replace")} if is_sent else self.body

    @property
    def detail(self) -> Json:
        """The types for `--set`, in the form that the server would show."""
        return {"parameters": self.description.get("parameters") or {}, **_configuration(self.description)}


def prepare(
    app: str | None,
    options: ImportOptions,
    given: Sequence[str],
    client: Client,
    *,
    is_plan: bool,
    ask: AskTool | None = None,
) -> ImportableApp:
    """Raises with nothing written, except that built images are pushed unless it is a plan.

    Most of the time is spent in the compose tool; in parallel the registry is found, and its client imported.
    """
    values = dict(_pairs(given))
    if options.image is not None or options.build or (app or "").startswith("oci://"):
        place = _place(options, client) if options.build else _published(app, client)
        imported = _imported(app, options, values, place, is_plan=is_plan, ask=ask)
    else:
        with ThreadPoolExecutor(1) as beside:
            reading = beside.submit(_imported, app, options, values, None, is_plan=is_plan, ask=ask)
            place = _place(options, client)
            if not is_plan:
                import_module("homeport.cli.local.storing")
            imported = reading.result()
    repository, revision = imported.place or ("", "")
    if imported.place is None:
        assert place is not None, "what has files is kept in a registry"
        repository, revision = f"oci://{place.repository(imported.name)}", imported.revision
    description = render_description(
        imported, repository=repository, revision=revision, version=options.app_version or FIRST_VERSION
    )
    return ImportableApp(imported, description, None if imported.place is not None else place, options.app_version)


def require_values(offer: ImportableApp, client: Client, *, name: str | None, sites: Sequence[str]) -> None:
    """Raises InvalidInput for variables without a value, from this command or from the deployment it updates."""
    missing = dict(offer.imported.undefined)
    if missing:
        wanted = name or offer.imported.name
        found = client.pages("/api/v1/deployments", "deployments", name=wanted, fields="name,site,parameters")
        for row in found["deployments"]:
            if row["name"] == wanted and (not sites or row["site"] in sites):
                missing = {each: problem for each, problem in missing.items() if each not in row["parameters"]}
    if missing:
        raise InvalidInput(problems=list(missing.values()))


def _imported(
    app: str | None,
    options: ImportOptions,
    values: Mapping[str, str],
    place: ComponentRegistry | None,
    *,
    is_plan: bool,
    ask: AskTool | None,
) -> Imported:
    if options.image is not None:
        from homeport.content.importing.images import import_image  # noqa: PLC0415 - start-up time

        return import_image(
            options.image,
            name=options.app_name,
            ports=options.ports,
            environment=options.environment,
            volumes=options.volumes,
            health=options.health,
            ours=os.environ,
        )
    assert app is not None, "options.check has seen to it"
    if app.startswith("oci://"):
        from homeport.cli.local.storing import chart_elsewhere  # noqa: PLC0415 - the registry's client is slow to import

        return chart_elsewhere(app, place, name=options.app_name)
    path = written_path(app)
    source_options = ImportSourceOptions(options.app_name, values, ask=ask)
    if options.build:
        from homeport.cli.local.building import build_images  # noqa: PLC0415 - start-up time

        assert place is not None, "what is built is pushed"
        source = find_source(path)
        name = options.app_name
        images = build_images(source, name, values, place, push=not is_plan)
        source_options = replace(source_options, images=images)
    return import_path(path, source_options)


def _place(options: ImportOptions, client: Client) -> ComponentRegistry:
    if options.registry is not None:
        host, _, prefix = options.registry.removeprefix("oci://").strip("/").partition("/")
        return ComponentRegistry(host, prefix or CATEGORY)
    try:
        found = client.get("/api/v1/registry")
    except NotFound:
        found = {}
    if not found.get("host"):
        raise Conflict(
            found.get("why") or "This server has no built-in registry.",
            hint="Name one to keep the app's files in:  --registry HOST/NAME .",
        )
    return built_in_place(client, found)


def _published(app: str | None, client: Client) -> ComponentRegistry | None:
    """Where a chart is, if that is the registry of the server itself."""
    if not (app or "").startswith("oci://"):
        return None
    return own_registry(client, str(app).removeprefix("oci://").partition("/")[0])


def _pairs(given: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (entry.partition("=") for entry in given)]


def _configuration(description: Json) -> Json:
    return {"configuration": description.get("configuration")}
