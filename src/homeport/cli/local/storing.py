"""The registry part of importing: stores a component, reads a chart that is published elsewhere."""

from collections.abc import Mapping
from typing import Any, Final

import anyio

from homeport.adapters.files.bounded_yaml import load_located
from homeport.catalog.packages import chart_artifact, compose_artifact
from homeport.cli.api.client import Client, Json
from homeport.cli.local.importing import ImportableApp
from homeport.cli.local.places import ComponentRegistry, registry_client
from homeport.content.importing.charts import CHART_FILE, VALUES_FILE, import_chart
from homeport.content.importing.description import Imported
from homeport.core.archive import read_member
from homeport.errors import InvalidInput
from homeport.vocabulary import ProfileType

FILE_SIZE_MAX: Final = 1024 * 1024
_CONTENT_TYPE: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


def store(offer: ImportableApp, client: Client) -> tuple[Json, bool]:
    """The app in the catalog, and whether it is new. Files first: an app never refers to what does not exist."""
    if offer.place is not None:
        imported, properties = offer.imported, _properties(offer.description)
        if imported.type is ProfileType.HELM:
            described, _ = load_located(imported.files[CHART_FILE], CHART_FILE)
            artifact = chart_artifact(described, imported.files)
        else:
            artifact = compose_artifact(imported.name, properties["revision"], imported.archive)
        registry = registry_client(offer.place)
        anyio.run(registry.push, properties["repository"], properties["revision"], artifact)
    answer = client.post("/api/v1/apps", offer.body)
    app: Json = (answer["added"] or answer["unchanged"])[0]
    return app, bool(answer["added"])


def chart_elsewhere(reference: str, place: ComponentRegistry | None, *, name: str | None) -> Imported:
    """A published chart stays where it is; only its values are read."""
    repository, colon, version = reference.rpartition(":")
    if not colon or "/" in version or repository == "oci":
        raise InvalidInput(f"{reference} has no version.", hint=f"Write it as  {reference}:1.2.3 .")
    artifact = anyio.run(registry_client(place).pull, repository, version.replace("+", "_"))
    packed = next((layer.content for layer in artifact.layers if layer.media_type == _CONTENT_TYPE), None)
    if packed is None:
        raise InvalidInput(f"{reference} is not a Helm chart.")
    found = {each: read_member(packed, each, size_max=FILE_SIZE_MAX) for each in (CHART_FILE, VALUES_FILE)}
    files = {each: content for each, content in found.items() if content is not None}
    if CHART_FILE not in files:
        raise InvalidInput(f"{reference} has no {CHART_FILE}.")
    return import_chart(files, name=name, place=(repository, version.replace("+", "_")))


def _properties(description: Json) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = description["deploymentProfiles"][0]["components"][0]["properties"]
    return properties
