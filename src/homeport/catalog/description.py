"""A Margo application description (`margo.yaml`), from bytes to an App.

First the structure is validated by the schema, then the references between parts. All problems are collected, so
that the author of a file sees them at once.
"""

from collections.abc import Mapping
from typing import Any, Final

from homeport.catalog.containment import contained
from homeport.catalog.documents import Document, load
from homeport.catalog.references import check_references
from homeport.catalog.structure import check_structure, unknown_fields
from homeport.core.model.app import App, Component, Parameter, ParameterTarget, Profile, Rule, Setting
from homeport.core.parameters import as_value
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import ProfileType

SCHEMA: Final = "application-description"
EXTENSION_SUFFIX: Final = "-extensions"


@dataclass(frozen=True, slots=True)
class Description:
    """A valid description: what decisions need, and the whole as plain data for storing."""

    app: App
    descriptor: Mapping[str, Any]


@contained
def parse_description(content: bytes, path: str, *, category: str = "") -> Description:
    """Raises TooLarge, or InvalidInput with all problems, each with field, file and line."""
    document = load(content, path)
    problems = _check_envelope(document)
    if not problems:
        problems = check_structure(document, SCHEMA) + unknown_fields(document, SCHEMA)
    if not problems:
        problems = check_references(document, app_of(document.data, category=category))
    if problems:
        ordered = sorted(set(problems), key=lambda problem: (problem.line or 0, problem.field))
        raise InvalidInput(problems=ordered)
    return Description(app_of(document.data, category=category), document.data)


def app_of(descriptor: Mapping[str, Any], *, category: str = "") -> App:
    """The App of a descriptor that was validated before."""
    metadata = descriptor["metadata"]
    configuration = descriptor.get("configuration") or {}
    return App(
        margo_id=descriptor["id"],
        name=metadata["name"],
        version=metadata["version"],
        category=category,
        vendor=metadata["catalog"]["organization"][0]["name"],
        profiles=tuple(_profile(each) for each in descriptor["deploymentProfiles"]),
        parameters=tuple(_parameter(name, each) for name, each in (descriptor.get("parameters") or {}).items()),
        settings=tuple(
            Setting(each["parameter"], each["name"], each["schema"], each.get("immutable", False))
            for section in configuration.get("sections", ())
            for each in section["settings"]
        ),
        rules=tuple(_rule(each) for each in configuration.get("schema", ())),
        description=metadata.get("description", ""),
        tags=tuple((metadata["catalog"].get("application") or {}).get("tags", ())),
    )


def extensions_of(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key.startswith("x-") and key.endswith(EXTENSION_SUFFIX)}


def _check_envelope(document: Document) -> list[Problem]:
    """A file of another kind would produce dozens of problems; one that names its kind is enough."""
    data = document.data
    if not isinstance(data, dict):
        return [document.problem((), "is not a Margo application description: it must be a mapping (name: value).")]
    if "services" in data and "deploymentProfiles" not in data:
        message = "makes this a compose file. Deploy it as it is:  homeport deploy ./compose.yaml ."
        return [document.problem(("services",), message)]
    if "spec" in data and "deploymentProfiles" not in data:
        return [document.problem(("spec",), "makes this a deployment; a Margo application description is expected.")]
    if "kind" not in data:
        return []
    if data["kind"] == "ApplicationDescription":
        message = "belongs to an older Margo version: remove this line, and see that apiVersion is v1."
    else:
        message = (
            f'says that this is a "{data["kind"]}", but a Margo application description is expected, without kind.'
        )
    problems = [document.problem(("kind",), message)]
    if data.get("apiVersion") != "v1":
        problems += [each for each in check_structure(document, SCHEMA) if each.field == "apiVersion"]
    return problems


def _profile(data: Mapping[str, Any]) -> Profile:
    return Profile(
        id=data["id"],
        type=ProfileType(data["type"]),
        components=tuple(
            Component(each["name"], each["properties"], extensions_of(each)) for each in data["components"]
        ),
        device_constraints=data.get("deviceConstraints"),
        description=data.get("description", ""),
        extensions=extensions_of(data),
    )


def _parameter(name: str, data: Mapping[str, Any]) -> Parameter:
    targets = tuple(ParameterTarget(each["pointer"], tuple(each["components"])) for each in data["targets"])
    return Parameter(name, as_value(data.get("value")), targets)


def _rule(data: Mapping[str, Any]) -> Rule:
    options = data.get("options")
    return Rule(
        name=data["name"],
        data_type=data["dataType"],
        allow_empty=data.get("allowEmpty", False),
        min_length=data.get("minLength"),
        max_length=data.get("maxLength"),
        regex_match=data.get("regexMatch"),
        min_value=data.get("minValue"),
        max_value=data.get("maxValue"),
        min_precision=data.get("minPrecision"),
        max_precision=data.get("maxPrecision"),
        multiselect=data.get("multiselect", False),
        options=tuple(options) if options is not None else None,
    )
