"""Margo's device constraints: whether a device may take an app, and if not, why not.

Rules are joined by OR, the two selectors of a rule and the expressions of a selector by AND. A key that leads
to an array of objects works only with the Contains operators; one that leads to an object or null is false.
Comparison never converts: "7" is not 7, and true is not 1.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from homeport.lazy_dataclass import dataclass

UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What Margo calls the capabilities of a device: its `properties` object and its labels."""

    properties: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)


def refusal(constraints: Mapping[str, Any] | None, device: DeviceProperties) -> str | None:
    """Why the device is not eligible, as one sentence without a subject; None when it is."""
    if not constraints:
        return None
    lacking = _insufficient_capacity(constraints.get("capacityRequirements") or {}, device.properties)
    if lacking:
        return lacking
    rules = constraints.get("eligibilityRules")
    if rules is None or any(_first_failing(rule, device) is None for rule in rules):
        return None
    if len(rules) == 1:
        return f"does not meet the rule {_first_failing(rules[0], device)}"
    return f"meets none of the {len(rules)} eligibility rules" if rules else "cannot meet an empty list of rules"


def bytes_of(quantity: str) -> float:
    """`4096Mi`, or as devices write it `4 Gi`, in bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]i)\s*", quantity)
    if match is None:
        return 0.0
    return float(match[1]) * UNITS[match[2]]


def _insufficient_capacity(required: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    cpu = required.get("cpu")
    if cpu and not any(_cpu_fits(cpu, each) for each in properties.get("cpus") or ()):
        kinds = " or ".join(cpu.get("architectures") or ())
        has = ", ".join(
            f"{_number(each.get('cores')) or 0:g} {each.get('architecture', '')}".strip()
            for each in properties.get("cpus") or ()
        )
        needed = f"{_number(cpu['cores']) or 0:g} cores{f' of {kinds}' if kinds else ''}"
        return f"needs one CPU with {needed}, has {has or 'none'}"
    for what in ("memory", "storage"):
        if what in required and bytes_of(str(properties.get(what, ""))) < bytes_of(required[what]):
            return f"needs {required[what]} of {what}, has {_readable(str(properties.get(what, '')))}"
    return None


def _readable(quantity: str) -> str:
    """`3.8Gi` for `3984588Ki`."""
    return readable_bytes(bytes_of(quantity))


def readable_bytes(count: float) -> str:
    unit = next((unit for unit in reversed(UNITS) if count >= UNITS[unit]), None)
    return f"{count / UNITS[unit]:.1f}".removesuffix(".0") + unit if unit else "none"


def _cpu_fits(required: Mapping[str, Any], cpu: Mapping[str, Any]) -> bool:
    """One CPU must have both enough cores and the right architecture; cores are never added up."""
    architectures = required.get("architectures")
    return bool(
        cpu.get("cores", 0) >= required["cores"] and (not architectures or cpu.get("architecture") in architectures)
    )


def _first_failing(rule: Mapping[str, Any], device: DeviceProperties) -> str | None:
    for expression in _expressions(rule.get("propertySelector")):
        if not _holds(expression, resolve(device.properties, expression["key"])):
            return _describe(expression)
    for expression in _expressions(rule.get("labelSelector")):
        if not _holds(expression, device.labels.get(expression["key"], _ABSENT)):
            return f"label {_describe(expression)}"
    return None


def _expressions(selector: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    return selector["matchExpressions"] if selector else ()


def _describe(expression: Mapping[str, Any]) -> str:
    values = ", ".join(str(value) for value in expression.get("values") or ())
    inner = " and ".join(_describe(each) for each in _expressions(expression.get("itemSelector")))
    return " ".join(
        part for part in (expression["key"], expression["operator"], values, inner and f"({inner})") if part
    )


def _holds(expression: Mapping[str, Any], value: Any) -> bool:
    operator = expression["operator"]
    items = value if isinstance(value, list | tuple) and value else ()
    objects = bool(items) and all(isinstance(item, Mapping) for item in items)
    if operator in ("ContainsAll", "ContainsAny"):
        quantifier: Callable[[Any], bool] = all if operator == "ContainsAll" else any
        wanted = _expressions(expression.get("itemSelector"))
        return objects and any(
            quantifier(_holds(each, resolve(item, each["key"])) for each in wanted) for item in items
        )
    if operator == "DoesNotExist":
        return value is _ABSENT
    if value is _ABSENT or value is None or isinstance(value, Mapping) or objects:
        return False
    if operator == "Exists":
        return True
    values = expression.get("values") or ()
    if operator in ("In", "NotIn"):
        present = items or (() if isinstance(value, list | tuple) else (value,))
        found = any(_equal(item, wanted) for item in present for wanted in values)
        return found if operator == "In" else not found
    return _compares(operator, value, values)


def _compares(operator: str, value: Any, values: Sequence[Any]) -> bool:
    left, right = _number(value), _number(values[0]) if len(values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits; more than any other all the same
        return math.inf if int(value) > 0 else -math.inf


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return (numbers or type(one) is type(other)) and bool(one == other)


def resolve(value: Any, pointer: str) -> Any:
    """The value at an RFC 6901 pointer, or the marker for a missing one."""
    if pointer == "":
        return value
    if not pointer.startswith("/"):
        return _ABSENT
    for step in pointer[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and re.fullmatch("0|[1-9][0-9]{0,8}", key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return _ABSENT
    return value
