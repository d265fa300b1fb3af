"""What expressions calculate with: functions and operators over JSON values, each bounded in what it makes."""

import ast
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from simpleeval import DEFAULT_OPERATORS

from homeport.core.pipelines.limits import EXPRESSION_DEPTH_MAX, OUTPUT_BYTES_MAX, OUTPUTS_BYTES_MAX
from homeport.core.values.json_values import is_unicode

TEXT_MAX: Final = OUTPUT_BYTES_MAX
LIST_MAX: Final = 10_000
NUMBER_MAX: Final = 2.0**63
VALUES_MAX: Final = 100_000
"""Values that one expression may look at or make, all together."""
SEEN_MAX: Final = OUTPUTS_BYTES_MAX // 2
"""Values inside one that an expression looks at as a whole: all outputs of a run have no more."""


class ExpressionError(Exception):
    """Why an expression cannot be read, or has no value."""


def check_size(value: Any) -> None:
    """Walks it with a budget: a structure that shares its parts is larger written than kept."""
    left = VALUES_MAX
    characters = 0
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        left -= 1
        if isinstance(each, str):
            characters += len(each)
            _check_unicode(each)
        elif isinstance(each, dict):
            for key in map(str, each):
                characters += len(key)
                _check_unicode(key)
            waiting += [(inner, depth + 1) for inner in each.values()]
        elif isinstance(each, list):
            waiting += [(inner, depth + 1) for inner in each]
        elif isinstance(each, float) and not math.isfinite(each):
            raise ExpressionError("the number is not finite.")
        if left < len(waiting) or characters > TEXT_MAX or depth > EXPRESSION_DEPTH_MAX:
            raise ExpressionError("the value is too large.")


def _check_unicode(text: str) -> None:
    if not is_unicode(text):
        raise ExpressionError("a text has half of a surrogate pair.")


def weight_of(value: Any) -> int:
    """What looking at all of it costs, in steps of an evaluation. A structure that shares its parts is walked as it
    would be written, so it is refused where that has no end."""
    count, characters, waiting = 0, 0, [value]
    while waiting:
        each = waiting.pop()
        count += 1
        if count + len(waiting) > SEEN_MAX:
            raise ExpressionError("takes too long.")
        if isinstance(each, str):
            characters += len(each)
        elif isinstance(each, list | dict):
            waiting += each.values() if isinstance(each, dict) else each
    return count // 50 + characters // 5_000


def _dumped(value: Any) -> str:
    check_size(value)
    return json.dumps(value, ensure_ascii=False)


def json_in(text: str) -> Any:
    """What a program or a server has written as JSON; None where it is none, or more than an expression may hold."""
    try:
        value = json.loads(text, parse_constant=lambda name: None)
        check_size(value)
    except (ValueError, RecursionError, ExpressionError):
        return None
    return value


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else _dumped(value)


def kind_of(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = ((bool, "true or false"), (str, "a text"), (list, "a list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "null" if value is None else "a number")


def short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else f"{flat[:119]}…"


def _length(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise ExpressionError("length() takes a text, a list or an object.")
    return len(value)


def _split(text: str, separator: str) -> list[str]:
    _check_texts("split", text, separator)
    if not separator:
        raise ExpressionError("split() needs a separator.")
    return text.split(separator, LIST_MAX)


def _join(items: list[Any], separator: str) -> str:
    _check_texts("join", separator)
    if not isinstance(items, list):
        raise ExpressionError("join() takes a list and a separator.")
    texts = [as_text(each) for each in items]
    if sum(map(len, texts)) + len(texts) * len(separator) > TEXT_MAX:
        raise ExpressionError(f"the text is longer than {TEXT_MAX} characters.")
    return separator.join(texts)


def _number(value: Any) -> float | int:
    if isinstance(value, str) and len(value) > 50:
        raise ExpressionError("number() takes a short text.")
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _from_json(text: str) -> Any:
    _check_texts("from_json", text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ExpressionError("the JSON is nested too deeply.") from None


def _no_constant(name: str) -> Any:
    raise ExpressionError(f"{name} is not JSON.")


def _range(count: Any) -> list[int]:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= LIST_MAX:
        raise ExpressionError(f"range() takes a whole number from 0 to {LIST_MAX}.")
    return list(range(count))


def _on_text(name: str, work: Callable[[str], Any]) -> Callable[[Any], Any]:
    def call(text: Any) -> Any:
        _check_texts(name, text)
        return work(text)

    return call


def _check_texts(name: str, *values: Any) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ExpressionError(f"{name}() takes texts.")


def _starts_with(text: Any, start: Any) -> bool:
    _check_texts("starts_with", text, start)
    return bool(text.startswith(start))


def _ends_with(text: Any, end: Any) -> bool:
    _check_texts("ends_with", text, end)
    return bool(text.endswith(end))


def _get(container: Any, key: Any, default: Any = None) -> Any:
    match container:
        case dict():
            return container.get(key, default)
        case list() if isinstance(key, int):
            return container[key] if -len(container) <= key < len(container) else default
    return default


def _default(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "length": _length,
    "text": as_text,
    "number": _number,
    "json": _dumped,
    "from_json": _from_json,
    "split": _split,
    "join": _join,
    "lines": _on_text("lines", lambda text: [line for line in text.split("\n")[:LIST_MAX] if line.strip()]),
    "trim": _on_text("trim", str.strip),
    "lower": _on_text("lower", str.lower),
    "upper": _on_text("upper", str.upper),
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "keys": lambda value: list(dict.keys(value)),
    "get": _get,
    "range": _range,
    "min": min,
    "max": max,
    "sum": lambda values: _bounded_number(sum(values)),
    "any": any,
    "all": all,
    "default": _default,
}


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) + len(right) > TEXT_MAX:
            raise ExpressionError(f"the text is longer than {TEXT_MAX} characters.")
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        if len(left) + len(right) > LIST_MAX:
            raise ExpressionError(f"the list is longer than {LIST_MAX}.")
        return left + right
    return _bounded_number(_numbers(left, right)[0] + right)


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    for value in (left, right):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExpressionError(f"cannot calculate with {kind_of(value)}.")
    return left, right


def _calculated(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda left, right: _bounded_number(work(*_numbers(left, right)))


def _bounded_number(value: Any) -> Any:
    if isinstance(value, int | float) and not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise ExpressionError("the number is too large.")
    return value


COMPARISONS: Final[tuple[type[ast.AST], ...]] = (
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Not),
)
OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    **{kind: DEFAULT_OPERATORS[kind] for kind in COMPARISONS},
    ast.Add: _add,
    ast.Sub: _calculated(lambda left, right: left - right),
    ast.Mult: _calculated(lambda left, right: left * right),
    ast.Div: _calculated(lambda left, right: left / right),
    ast.FloorDiv: _calculated(lambda left, right: left // right),
    ast.Mod: _calculated(lambda left, right: left % right),
    ast.USub: lambda value: -_numbers(value, 0)[0],
}
