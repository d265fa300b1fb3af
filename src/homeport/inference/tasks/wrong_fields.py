"""What is wrong with a body, in sentences that name the field and say what it must be."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from homeport.serving.problems import plain_message

PROBLEMS_MAX: Final = 5
MESSAGE_MAX: Final = 1_000

# fmt: off
_RULES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing":                lambda limits: "is missing",
    "int_type":               lambda limits: "must be a whole number",
    "int_parsing":            lambda limits: "must be a whole number",
    "int_parsing_size":       lambda limits: "must be a smaller number",
    "int_from_float":         lambda limits: "must be a whole number",
    "string_type":            lambda limits: "must be a text",
    "string_too_short":       lambda limits: "must not be empty",
    "string_too_long":        lambda limits: f"must have at most {limits['max_length']:,} characters",
    "too_long":               lambda limits: f"must have at most {limits['max_length']:,} entries",
    "bool_type":              lambda limits: "must be true or false",
    "bool_parsing":           lambda limits: "must be true or false",
    "tuple_type":             lambda limits: "must be a list",
    "list_type":              lambda limits: "must be a list",
    "dict_type":              lambda limits: "must be an object",
    "model_type":             lambda limits: "must be an object",
    "greater_than_equal":     lambda limits: f"must be at least {limits['ge']}",
    "less_than_equal":        lambda limits: f"must be at most {limits['le']}",
    "less_than":              lambda limits: f"must be less than {limits['lt']}",
    "literal_error":          lambda limits: f"must be one of {limits['expected']}",
    "enum":                   lambda limits: f"must be one of {limits['expected']}",
}
# fmt: on
"""By what pydantic calls it: the rest of a sentence that begins with the field."""


def sentences(error: ValidationError, patterns: Mapping[str, str]) -> tuple[str, str]:
    """The field of the first problem, and all of them as a text. `patterns` says what a field must look like."""
    found = error.errors(include_url=False, include_input=False)
    said = " ".join(_sentence(each, patterns) for each in found[:PROBLEMS_MAX])
    return _field(found[0]["loc"]), said[:MESSAGE_MAX]


def _sentence(item: Mapping[str, Any], patterns: Mapping[str, str]) -> str:
    kind, limits = item["type"], item.get("ctx", {})
    if kind == "json_invalid":
        return f"The body is not JSON: {limits.get('error', 'it does not parse')}."
    if kind == "string_pattern_mismatch" and limits.get("pattern") in patterns:
        rest = f"must be {patterns[limits['pattern']]}"
    else:
        rest = _RULES[kind](limits) if kind in _RULES else plain_message(item)
    field = _field(item["loc"])
    return f"{'The body' if field == 'body' else field} {rest}."


def _field(location: tuple[str | int, ...]) -> str:
    """`("placement", "avoid_pools", 0)` becomes `placement.avoid_pools[0]`."""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name or "body"
