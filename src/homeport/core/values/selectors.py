"""Label selectors: `region=eu,tier!=test,gpu,!old,zone in (a,b)`. All of its requirements must hold.

A requirement on a label that is absent holds only for `!=`, `notin` and `!`, as users of such selectors expect.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
KEY_PATTERN: Final = re.compile(_KEY)
VALUE_PATTERN: Final = re.compile(f"(?:{_VALUE})?")
_PART: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_KEY})\s*"
    rf"(?:(?P<operator>==|=|!=)\s*(?P<value>(?:{_VALUE})?)|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?\s*"
)
LENGTH_MAX: Final = 1_000
_COMMA: Final = re.compile(r",(?![^()]*\))")


class Operator(StrEnum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.EXISTS:
                return self.key in labels
            case Operator.ABSENT:
                return self.key not in labels
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN if len(self.values) == 1:
                return f"{self.key}{'=' if self.operator is Operator.IN else '!='}{self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class Selector:
    requirements: tuple[Requirement, ...] = ()

    def unmet(self, labels: Mapping[str, str]) -> Requirement | None:
        """The first requirement that does not hold; None when all do."""
        return next((each for each in self.requirements if not each.holds(labels)), None)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(str(each) for each in self.requirements)


ANYTHING: Final = Selector()


def parse_selector(text: str, *, field: str = "selector") -> Selector:
    """Raises InvalidInput with a sentence that names the part which cannot be read."""
    if len(text) > LENGTH_MAX:
        message = f"has {len(text)} characters; at most {LENGTH_MAX} are read."
        raise InvalidInput(problems=[Problem(field, message)])
    parts = _COMMA.split(text) if text.strip() else []
    return Selector(tuple(_requirement(part, field) for part in parts))


def label_problem(key: str, value: str) -> str | None:
    """What is wrong with a label; None for a good one."""
    if not KEY_PATTERN.fullmatch(key):
        return f'"{key}" is not a valid label name: use letters, digits, dots, dashes, underscores and slashes.'
    if not VALUE_PATTERN.fullmatch(value):
        return f'"{value}" is not a valid value for the label {key}: use at most 63 letters, digits, dots and dashes.'
    return None


def _requirement(part: str, field: str) -> Requirement:
    match = _PART.fullmatch(part)
    if match is None or (match["absent"] and (match["operator"] or match["set"])):
        message = f'"{part.strip()}" cannot be read. Write key=value, key!=value, key, !key or key in (a,b).'
        raise InvalidInput(problems=[Problem(field, message)])
    if match["absent"]:
        return Requirement(match["key"], Operator.ABSENT)
    if match["operator"]:
        operator = Operator.NOT_IN if match["operator"] == "!=" else Operator.IN
        return Requirement(match["key"], operator, (match["value"],))
    if match["set"]:
        return Requirement(match["key"], Operator(match["set"]), _values(match["values"], part, field))
    return Requirement(match["key"], Operator.EXISTS)


def _values(text: str, part: str, field: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    if not all(value and VALUE_PATTERN.fullmatch(value) for value in values):
        raise InvalidInput(problems=[Problem(field, f'"{part.strip()}" has a value in its list that cannot be one.')])
    return values
