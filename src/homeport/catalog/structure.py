"""Validates a document against the shipped schemas and words the violations so that a user can act on them.

The schemas decide; this module only words the result. What is specific to a field (a version with a leading v, a
timeout of 90s) has its own sentence in `_PATTERNS`, all else is worded by the kind of rule.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from homeport.catalog.conformance import Check, compiled
from homeport.catalog.documents import Document, Location
from homeport.core.parameters import show, suggest
from homeport.core.values.patterns import matches
from homeport.errors import Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError

Violation = Any
"""A jsonschema ValidationError; its own type hints declare every attribute optional."""

_KINDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping (name: value)",
    "array": "a list",
    "null": "empty",
}

WORDED_MAX: Final = 200
"""Problems that are put into words, each with a suggestion: no more are shown, and twenty thousand take seconds."""


def check_structure(document: Document, schema_name: str) -> list[Problem]:
    """The violations of the schema, in the order of the lines."""
    if conforms(schema_name)(document.data):
        return []
    problems = (
        document.problem(location, message)
        for error in validator(schema_name).iter_errors(document.data)
        for location, message in _message(error, document)
    )
    return sorted(set(islice(problems, WORDED_MAX)), key=lambda problem: (problem.line or 0, problem.field))


def unknown_fields(document: Document, schema_name: str) -> list[Problem]:
    """Fields that the schema does not name: probably typing errors, so they are reported, not ignored. What the
    components of a custom profile are given is for their vendor's devices to know."""
    schema = _schema(schema_name)
    problems = (
        document.problem(location, _unknown(str(location[-1]), known))
        for location, known in _surplus(document.data, schema, schema, ())
        if not _is_of_custom_component(document.data, location)
    )
    return list(islice(problems, WORDED_MAX))


def _is_of_custom_component(data: Any, location: Location) -> bool:
    match location:
        case ("deploymentProfiles", int(number), "components", int(), "properties", *_):
            return bool(data["deploymentProfiles"][number].get("type") == "custom")
        case _:
            return False


@cache
def _schema(name: str) -> dict[str, Any]:
    text = resources.files("homeport.catalog").joinpath(f"schemas/{name}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def conforms(name: str) -> Check:
    return compiled(_schema(name))


@cache
def validator(name: str) -> Any:
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - start-up time

    extend: Any = validators.extend
    return extend(Draft202012Validator, {"pattern": _pattern})(_schema(name))


def _pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule accepts a trailing line break and non-ASCII digits."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    if isinstance(value, str) and not matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _surplus(
    data: Any, schema: Mapping[str, Any], root: Mapping[str, Any], location: Location
) -> Iterator[tuple[Location, list[str]]]:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(data, list):
        for position, item in enumerate(data):
            yield from _surplus(item, schema.get("items", {}), root, (*location, position))
    if not isinstance(data, dict):
        return
    known: dict[str, Any] = schema.get("properties", {})
    for key, value in data.items():
        if key in known:
            yield from _surplus(value, known[key], root, (*location, key))
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from _surplus(value, schema["additionalProperties"], root, (*location, key))
        elif known and "additionalProperties" not in schema and not _is_extension(key, schema):
            yield (*location, key), list(known)


def _is_extension(key: str, schema: Mapping[str, Any]) -> bool:
    return any(matches(pattern, key) for pattern in schema.get("patternProperties", ()))


def _unknown(key: str, known: list[str]) -> str:
    if key.startswith("x-"):
        return "is not an extension's name here: they are written x-<name>-extensions, in lower case."
    return f"is not a field of this document.{suggest(key, known)}"


def _message(error: Violation, document: Document) -> Iterator[tuple[Location, str]]:
    location: Location = tuple(error.absolute_path)
    rule, value, instance = error.validator, error.validator_value, error.instance
    if rule == "required":
        for key in value:
            if key not in instance:
                yield (*location, key), "is missing."
    elif rule == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        for key in instance:
            if key not in known and not _is_extension(key, error.schema):
                yield (*location, key), _unknown(key, known)
    else:
        word = _RULES.get(str(rule))
        yield location, word(error, document, location) if word else f"is not valid: {error.message}"


def _wrong_type(error: Violation, document: Document, location: Location) -> str:
    wanted = error.validator_value
    kinds = [wanted] if isinstance(wanted, str) else list(wanted)
    text = document.texts.get(location)
    if kinds == ["string"] and text is not None:
        kind = "empty" if error.instance is None else "a number"
        kind = "true or false" if isinstance(error.instance, bool) else kind
        return f'must be text, but YAML reads {text or "nothing"} as {kind}: put it in quotes ("{text}").'
    return f"must be {' or '.join(_KINDS[kind] for kind in kinds)}, not {_shown(error.instance)}."


def _enumerated(error: Violation, document: Document, location: Location) -> str:
    choices = [str(choice) for choice in error.validator_value]
    if error.instance == "helm.v3":
        return '"helm.v3" is the name from an older Margo version; write "helm".'
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return f"must be one of {listed}, not {_shown(error.instance)}.{suggest(str(error.instance), choices)}"


def _constant(error: Violation, document: Document, location: Location) -> str:
    value = error.instance
    if location == ("apiVersion",) and isinstance(value, str) and "margo.org" in value:
        return f'"{value}" is from an older Margo version; this is read as Margo 1.0: write "v1".'
    return f'must be "{error.validator_value}", not {_shown(value)}.'


def _mismatch(error: Violation, document: Document, location: Location) -> str:
    word = _PATTERNS.get(str(location[-1]) if location else "")
    text = str(error.instance)
    return word(text) if word else f"{show(text)} does not match {error.validator_value}"


def _revision(text: str) -> str:
    if matches(r"^v\d", text):
        return f"{show(text)} is not a version: leave out the leading v ({text[1:]})."
    if "+" in text:
        return f"{show(text)} has a +, which registries do not allow: write {text.replace('+', '_')}."
    return f"{show(text)} is not a version: three numbers are needed, as in 1.0.0."


_PATTERNS: Final[dict[str, Callable[[str], str]]] = {
    "revision": _revision,
    "timeout": lambda text: f"{show(text)} is not a timeout: write minutes and seconds, as in 1m30s.",
    "repository": lambda text: f"{show(text)} is not an OCI repository: it begins with oci://.",
    "id": lambda text: (
        f"{show(text)} is not an id: "
        "a deployment's is a UUID, an app's has lower case letters, digits and dashes, at most 200."
    ),
    "applicationId": lambda text: (
        f"{show(text)} is not an app's id: lower case letters, digits and dashes, at most 200."
    ),
    "deviceId": lambda text: f"{show(text)} is not a device id: names joined by /, a * only at the end.",
    "name": lambda text: f"{show(text)} is not a component's name: use lower case letters, digits and dashes.",
    "memory": lambda text: (
        f"{show(text)} is not an amount of memory: write a whole number and Ki, Mi or Gi, as in 512Mi."
    ),
    "storage": lambda text: (
        f"{show(text)} is not an amount of storage: write a whole number and Ki, Mi, Gi, Ti, Pi or Ei, as in 10Gi."
    ),
    "email": lambda text: f"{show(text)} is not an e-mail address.",
}


def _forbidden(error: Violation, document: Document, location: Location) -> str:
    if isinstance(error.instance, dict) and "operator" in error.instance:
        operator = error.instance["operator"]
        needed = "itemSelector" if operator in {"ContainsAll", "ContainsAny"} else "values"
        surplus = [key for key in ("values", "itemSelector") if key in error.instance]
        takes = f"takes {needed}" if needed in surplus and len(surplus) > 1 else "takes none"
        other = next((key for key in surplus if key != needed), needed)
        return f'must not have "{other}": the operator {operator} {takes}.'
    return f"must be text, a number, true or false, or a list of these, not {_shown(error.instance)}."


def _alternatives(error: Violation, document: Document, location: Location) -> str:
    if location and location[-1] == "values":
        return "must be texts, or numbers, or one of true and false; not a mixture, and not empty."
    if location and "operator" not in error.schema and location[-1] == "value":
        return f"must be text, a number, true or false, or a list of these, not {_shown(error.instance)}."
    return f"{_shown(error.instance)} is not a number."


_RULES: Final[dict[str, Callable[[Violation, Document, Location], str]]] = {
    "type": _wrong_type,
    "enum": _enumerated,
    "const": _constant,
    "pattern": _mismatch,
    "not": _forbidden,
    "anyOf": _alternatives,
    "minItems": lambda error, document, location: "must have at least one entry.",
    "maxItems": lambda error, document, location: f"must have at most {error.validator_value}.",
    "minLength": lambda error, document, location: "must not be empty.",
    "contains": lambda error, document, location: "needs a rule with a labelSelector, as the profile is custom.",
    "exclusiveMinimum": lambda error, document, location: f"must be more than {error.validator_value}.",
    "minimum": lambda error, document, location: f"must be at least {error.validator_value}.",
    "maximum": lambda error, document, location: f"must be at most {error.validator_value}.",
    "maxLength": lambda error, document, location: f"must have at most {error.validator_value} characters.",
    "minProperties": lambda error, document, location: "must have at least one entry.",
    "maxProperties": lambda error, document, location: f"must have at most {error.validator_value} entries.",
}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return show(value)
