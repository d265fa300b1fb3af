"""Validates bodies of the management interface against the shipped schemas."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from homeport.core.values.patterns import matches
from homeport.errors import Problem

if TYPE_CHECKING:
    from jsonschema import ValidationError

PROBLEMS_MAX: Final = 50
CAPABILITIES: Final = "device-capabilities"
STATUS: Final = "deployment-status"


def violations(body: Mapping[str, Any], schema: str) -> list[Problem]:
    """What is wrong with the body, each with its field; empty for a valid one."""
    found = []
    for error in _validator(schema).iter_errors(body):
        field = ".".join(str(step) for step in error.absolute_path) or "body"
        found.append(Problem(field, str(error.message)[:300]))
        if len(found) == PROBLEMS_MAX:
            break
    return found


@cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - start-up time

    text = resources.files("homeport.margo").joinpath(f"schemas/{name}.schema.json").read_text("utf-8")
    extend: Any = validators.extend
    rules = {"pattern": _pattern, "required": _required, "type": _type}
    return extend(Draft202012Validator, rules)(json.loads(text))


def _pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule accepts a trailing line break."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    if isinstance(value, str) and not matches(pattern, value):
        yield ValidationError(f"{value[:100]!r} does not match {pattern}")


def _required(_: Any, required: Sequence[str], value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule names the object that lacks a field, not the field."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    for name in required:
        if isinstance(value, dict) and name not in value:
            yield ValidationError("is required", path=[name])


def _type(validator: Any, wanted: str, value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule shows the value as Python writes it."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    if not validator.is_type(value, wanted):
        yield ValidationError(f"must be of the type {wanted}")
