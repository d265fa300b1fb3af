"""Whether a document conforms to a JSON schema: yes or no, from functions that are made of the schema once.

A repository has files by the thousand, nearly all of them right, and the library that explains what is wrong takes
most of the time of reading one. Where the answer here is no, it is asked (ADR 0193). Only those words of JSON Schema
are known that our schemas use: any other is an error here, and not passed over. A test compares both.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from homeport.core.values.patterns import matches

Check = Callable[[Any], bool]
Schema = Mapping[str, Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final[Mapping[str, Check]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}
_SILENT: Final = frozenset({"$comment", "$defs", "$id", "$schema", "description", "title"})
_WITH_OTHERS: Final = frozenset({"additionalProperties", "patternProperties", "then"})
"""Read together with `properties` or `if`."""


def compiled(schema: Schema) -> Check:
    return _Compiler(schema).check(schema)


class _Compiler:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._named: dict[str, Check] = {}

    def check(self, schema: Schema) -> Check:
        words = schema.keys() - _SILENT - _WITH_OTHERS
        if "additionalProperties" in schema or "patternProperties" in schema:
            words |= {"properties"}
        checks = [self._word(word, schema.get(word), schema) for word in sorted(words)]
        return checks[0] if len(checks) == 1 else _all(checks)

    def _word(self, word: str, given: Any, schema: Schema) -> Check:  # noqa: PLR0911 - one for each word
        match word:
            case "type":
                kinds = [given] if isinstance(given, str) else given
                return _any([_TYPES[kind] for kind in kinds])
            case "$ref":
                return self._reference(given.removeprefix("#/$defs/"))
            case "properties":
                return self._properties(schema)
            case "items":
                return _of_list(_each(self.check(given)))
            case "contains":
                is_one = self.check(given)
                return _of_list(lambda value: any(map(is_one, value)))
            case "allOf":
                return _all([self.check(each) for each in given])
            case "anyOf":
                return _any([self.check(each) for each in given])
            case "not":
                is_it = self.check(given)
                return lambda value: not is_it(value)
            case "if":
                is_so, then = self.check(given), self.check(schema["then"])
                return lambda value: not is_so(value) or then(value)
            case _:
                return _LIMITS[word](given)

    def _reference(self, name: str) -> Check:
        """Made when it is first needed: a selector may have selectors in it."""

        def check(value: Any) -> bool:
            if name not in self._named:
                self._named[name] = self.check(self._root["$defs"][name])
            return self._named[name](value)

        return check

    def _properties(self, schema: Schema) -> Check:
        patterns = {pattern: self.check(each) for pattern, each in schema.get("patternProperties", {}).items()}
        others = schema.get("additionalProperties", True)
        rest = (lambda _: others) if isinstance(others, bool) else self.check(others)
        known = {
            name: _all([self.check(each), *(check for pattern, check in patterns.items() if matches(pattern, name))])
            for name, each in schema.get("properties", {}).items()
        }

        def check(value: Any) -> bool:
            return not isinstance(value, dict) or all(
                (known.get(name) or _of_unknown(name, patterns, rest))(each) for name, each in value.items()
            )

        return check


def _of_unknown(name: str, patterns: Mapping[str, Check], rest: Check) -> Check:
    found = [check for pattern, check in patterns.items() if matches(pattern, name)]
    return _all(found) if found else rest


def _all(checks: list[Check]) -> Check:
    return checks[0] if len(checks) == 1 else lambda value: all(check(value) for check in checks)


def _any(checks: list[Check]) -> Check:
    return checks[0] if len(checks) == 1 else lambda value: any(check(value) for check in checks)


def _each(check: Check) -> Check:
    return lambda value: all(map(check, value))


def _of_text(check: Check) -> Check:
    return lambda value: not isinstance(value, str) or check(value)


def _of_list(check: Check) -> Check:
    return lambda value: not isinstance(value, list) or check(value)


def _of_mapping(check: Check) -> Check:
    return lambda value: not isinstance(value, dict) or check(value)


def _of_number(check: Check) -> Check:
    return lambda value: not _is_number(value) or check(value)


_LIMITS: Final[Mapping[str, Callable[[Any], Check]]] = {
    # Texts only, as ours are: for numbers 1 and true would have to be distinguished.
    "enum": lambda given: lambda value: isinstance(value, str) and value in given,
    "const": lambda given: lambda value: isinstance(value, str) and value == given,
    "required": lambda given: _of_mapping(lambda value: all(name in value for name in given)),
    "pattern": lambda given: _of_text(lambda value: matches(given, value)),
    "minLength": lambda given: _of_text(lambda value: len(value) >= given),
    "maxLength": lambda given: _of_text(lambda value: len(value) <= given),
    "minItems": lambda given: _of_list(lambda value: len(value) >= given),
    "maxItems": lambda given: _of_list(lambda value: len(value) <= given),
    "minProperties": lambda given: _of_mapping(lambda value: len(value) >= given),
    "maxProperties": lambda given: _of_mapping(lambda value: len(value) <= given),
    "minimum": lambda given: _of_number(lambda value: value >= given),
    "maximum": lambda given: _of_number(lambda value: value <= given),
    "exclusiveMinimum": lambda given: _of_number(lambda value: value > given),
}
