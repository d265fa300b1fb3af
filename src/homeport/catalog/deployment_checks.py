"""Validation of a deployment file, beyond YAML syntax."""

from pathlib import PurePosixPath
from typing import Any, Final

from homeport.catalog.description import extensions_of
from homeport.catalog.documents import Document, Location
from homeport.catalog.extension import OURS, TEXT_LENGTH_MAX, check_extension
from homeport.catalog.references import check_custom, takes_variables
from homeport.catalog.structure import check_structure
from homeport.core.custom import ENVIRONMENT_NAME
from homeport.core.model.app import Component
from homeport.core.parameters import listing, show, suggest
from homeport.errors import Problem
from homeport.vocabulary import ProfileType, SiteName

SCHEMA: Final = "application-deployment"


def check_deployment(document: Document, site: SiteName) -> list[Problem]:
    """Every problem of the first kind that has any: document type, structure, then references between parts."""
    return (
        _check_envelope(document)
        or check_structure(document, SCHEMA)
        or [
            *_check_identity(document, site),
            *_check_lengths(document),
            *_check_components(document),
            *_check_targets(document),
            *check_extension(document),
        ]
    )


def _check_envelope(document: Document) -> list[Problem]:
    data = document.data
    if not isinstance(data, dict):
        return [document.problem((), "is not a deployment: it must be a mapping (name: value).")]
    if "deploymentProfiles" in data and "spec" not in data:
        message = "makes this an application description; a deployment is expected in this folder."
        return [document.problem(("deploymentProfiles",), message)]
    problems = []
    if "kind" in data and data["kind"] != "ApplicationDeployment":
        message = f'says that this is a "{data["kind"]}", but a Margo deployment is expected, without kind.'
        problems.append(document.problem(("kind",), message))
    elif "apiVersion" in data or "kind" in data:
        key = "apiVersion" if "apiVersion" in data else "kind"
        message = "belongs to an older Margo version; a deployment has neither apiVersion nor kind: remove them."
        problems.append(document.problem((key,), message))
    return problems


def _check_identity(document: Document, site: SiteName) -> list[Problem]:
    data, name = document.data, PurePosixPath(document.path).stem
    problems = []
    if data["id"].lower() != name:
        message = f'is "{data["id"]}", but the file is called {name}.yaml; the two must be the same.'
        problems.append(document.problem(("id",), message))
    device, ours = data["metadata"]["deviceId"], data["spec"].get(OURS) or {}
    # A device of a Margo client has an id of its own; the file then says whose client it is for.
    if device != site and not (isinstance(ours, dict) and ours.get("client") == site):
        message = f'is "{device}", but the file is in the folder of site "{site}"; the two must be the same.'
        problems.append(document.problem(("metadata", "deviceId"), message))
    return problems


def _check_lengths(document: Document) -> list[Problem]:
    """Lengths are limited because names go into indexes, labels and messages."""
    metadata, profile = document.data["metadata"], document.data["spec"]["deploymentProfile"]
    names: list[tuple[Location, str]] = [(("metadata", key), metadata[key]) for key in ("name", "namespace")]
    for position, each in enumerate(profile["components"]):
        place = ("spec", "deploymentProfile", "components", position)
        names += [((*place, "name"), each["name"])]
        names += [((*place, "properties", "revision"), each["properties"]["revision"])]
    return [
        document.problem(location, f"has {len(text)} characters; at most {TEXT_LENGTH_MAX} are read.")
        for location, text in names
        if len(text) > TEXT_LENGTH_MAX
    ]


def _components(document: Document) -> list[Component]:
    given = document.data["spec"]["deploymentProfile"]["components"]
    return [Component(each["name"], each["properties"], extensions_of(each)) for each in given]


def _check_components(document: Document) -> list[Problem]:
    kind = ProfileType(document.data["spec"]["deploymentProfile"]["type"])
    return [
        document.problem(("spec", "deploymentProfile", "components", position, *where), message)
        for position, component in enumerate(_components(document))
        for where, message in check_custom(kind, component)
    ]


def _check_targets(document: Document) -> list[Problem]:
    profile = document.data["spec"]["deploymentProfile"]
    known = [component["name"] for component in profile["components"]]
    kind = ProfileType(profile["type"])
    variables = {component.name for component in _components(document) if takes_variables(kind, component)}
    problems = [
        document.problem(
            ("spec", "deploymentProfile", "components", position, "name"),
            f'another component is called "{name}" too.',
        )
        for position, name in enumerate(known)
        if name in known[:position]
    ]
    for parameter, each in (document.data["spec"].get("parameters") or {}).items():
        for number, target in enumerate(each["targets"]):
            place = ("spec", "parameters", parameter, "targets", number)
            for position, name in enumerate(target["components"]):
                if name not in known:
                    message = f'names "{name}", but this profile has only {listing(known)}.{suggest(name, known)}'
                    problems.append(document.problem((*place, "components", position), message))
            if not (target["components"] and set(target["components"]) <= variables):
                continue
            if not ENVIRONMENT_NAME.fullmatch(target["pointer"]):
                message = f"{show(target['pointer'])} is not the name of an environment variable."
                problems.append(document.problem((*place, "pointer"), message))
        if _is_nested(each["value"]):
            message = "must be text, a number, true or false, or a list of these."
            problems.append(document.problem(("spec", "parameters", parameter, "value"), message))
    return problems


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, list | dict) or item is None for item in value)
