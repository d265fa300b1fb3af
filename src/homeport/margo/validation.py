"""Validates bodies of the management interface against the shipped schemas."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
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
    usual = Draft202012Validator.VALIDATORS
    rules: dict[str, Any] = {key: _in_own_words(usual[key], say) for key, say in SAID}
    rules |= {"pattern": _pattern, "required": _required}
    rules["additionalProperties"] = partial(_closed, usual["additionalProperties"])
    return extend(Draft202012Validator, rules)(json.loads(text))


def _in_own_words(rule: Any, say: Callable[[Any, Any], str]) -> Callable[..., Iterator["ValidationError"]]:
    """The library's own sentences show values as Python writes them."""

    def judged(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator["ValidationError"]:
        from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

        if any(True for _ in rule(validator, wanted, value, schema) or ()):
            yield ValidationError(say(wanted, value))

    return judged


def _pattern(_: Any, pattern: str, value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule accepts a trailing line break."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    if isinstance(value, str) and not matches(pattern, value):
        yield ValidationError(f"{_shown(value)} does not match {pattern}")


def _required(_: Any, required: Sequence[str], value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule names the object that lacks a field, not the field."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    for name in required:
        if isinstance(value, dict) and name not in value:
            yield ValidationError("is required", path=[name])


def _closed(rule: Any, validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator["ValidationError"]:
    """The library's own rule names the object that has the field, not the field."""
    from jsonschema import ValidationError  # noqa: PLC0415 - start-up time

    if wanted is not False:
        yield from rule(validator, wanted, value, schema)
        return
    for name in value if isinstance(value, dict) else ():
        known = name in schema.get("properties", {})
        if not known and not any(matches(pattern, name) for pattern in schema.get("patternProperties", {})):
            yield ValidationError("is not a field of the contract", path=[name[:100]])


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:100]


SAID: Final[Sequence[tuple[str, Callable[[Any, Any], str]]]] = (
    ("type", lambda wanted, value: f"must be of the type {wanted}"),
    ("enum", lambda wanted, value: f"must be one of {', '.join(map(_shown, wanted))}, not {_shown(value)}"),
    ("anyOf", lambda wanted, value: "must be text, a number, true or false, or a list of texts or of numbers"),
    ("minLength", lambda wanted, value: f"must have at least {wanted} character"),
    ("minItems", lambda wanted, value: f"must have at least {wanted} entry"),
    ("minimum", lambda wanted, value: f"must be at least {wanted}, not {_shown(value)}"),
    ("maximum", lambda wanted, value: f"must be at most {wanted}, not {_shown(value)}"),
    ("exclusiveMinimum", lambda wanted, value: f"must be more than {wanted}, not {_shown(value)}"),
)
