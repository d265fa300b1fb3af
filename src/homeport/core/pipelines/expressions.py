"""Expressions of pipelines: what may be written in one, and what it is worth (ADR 0073).

The syntax is a part of Python's, parsed by Python itself and evaluated by simpleeval. Values are JSON only; a dot
reads a key of an object and nothing else, so no method and no attribute of Python can be reached. There is no loop
but the comprehension over a list that exists, no assignment, no power, and every text, list and number that an
operation makes is bounded.
"""

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from simpleeval import EvalWithCompoundTypes, InvalidExpression

from homeport.core.pipelines.functions import (
    COMPARISONS,
    FUNCTIONS,
    OPERATORS,
    TEXT_MAX,
    VALUES_MAX,
    ExpressionError,
    as_text,
    check_size,
    kind_of,
    short,
    weight_of,
)
from homeport.core.pipelines.limits import EXPRESSION_DEPTH_MAX, EXPRESSION_LENGTH_MAX, TEMPLATE_EXPRESSIONS_MAX
from homeport.lazy_dataclass import dataclass

NAMES: Final = frozenset({"inputs", "steps", "run", "item", "index", "true", "false", "null"})
_TEMPLATE: Final = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    tree: ast.expr
    steps: frozenset[str]
    """The steps that it refers to."""
    names: frozenset[str]
    inputs: frozenset[str]
    """The inputs that it names."""


def parse(text: str) -> Expression:
    """With or without `${{ }}` around it. Raises ExpressionError."""
    whole = _TEMPLATE.fullmatch(text.strip())
    bare = (whole[1] if whole else text).strip()
    if not bare:
        raise ExpressionError("is empty.")
    if len(bare) > EXPRESSION_LENGTH_MAX:
        raise ExpressionError(f"is longer than {EXPRESSION_LENGTH_MAX} characters.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(bare, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        why = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply"
        raise ExpressionError(f"`{short(bare)}` is not an expression: {why}.") from None
    checked = _Checked()
    checked.check(tree, frozenset(), 0)
    return Expression(bare, tree, frozenset(checked.steps), frozenset(checked.names), frozenset(checked.inputs))


def in_template(value: Any) -> Iterator[tuple[tuple[str | int, ...], Expression]]:
    """Every expression in the texts of a value, with its place. Raises `TemplateError`."""
    for location, text in _texts(value, ()):
        found = _TEMPLATE.findall(text)
        if len(found) > TEMPLATE_EXPRESSIONS_MAX:
            raise TemplateError(location, f"has more than {TEMPLATE_EXPRESSIONS_MAX} expressions.")
        if text.count("${{") != len(found):
            raise TemplateError(location, "has a ${{ without its }}.")
        for each in found:
            try:
                yield location, parse(each)
            except ExpressionError as error:
                raise TemplateError(location, str(error)) from None


_OPERATOR: Final = re.compile(
    r"^(?:unsupported operand type\(s\) for (?P<after>\S+): |'(?P<before>\S+)' not supported between instances of )"
    r"'(?P<left>\w+)' and '(?P<right>\w+)'$"
)
_TYPES: Final = {
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
    "NoneType": "null",
}


class TemplateError(ExpressionError):
    """An expression inside a value."""

    def __init__(self, location: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.location = location


def evaluate(expression: Expression, names: Mapping[str, Any]) -> Any:
    """A JSON value, bounded in size. Raises ExpressionError."""
    evaluator = _Evaluator(names)
    try:
        value = evaluator.eval(expression.text, ast.Expr(value=expression.tree))
        check_size(value)
    except ExpressionError as error:
        raise ExpressionError(f"`{short(expression.text)}`: {error}") from None
    except InvalidExpression as error:
        raise ExpressionError(f"`{short(expression.text)}`: {short(str(error))}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ExpressionError(f"`{short(expression.text)}` has no value: {short(_in_words(error))}.") from None
    return value


def _in_words(error: Exception) -> str:
    """Python names its own types, which authors of pipelines do not know."""
    found = _OPERATOR.search(str(error))
    if found is None:
        return str(error)
    left, right = (_TYPES.get(found[name], found[name]) for name in ("left", "right"))
    return f"{found['before'] or found['after']} is not for {left} and {right}"


def render(value: Any, names: Mapping[str, Any]) -> Any:
    """The value with the expressions of its texts replaced. A text that is one expression takes its value, whatever
    its type; in others, text is inserted as it is and anything else as JSON. Raises ExpressionError."""
    if isinstance(value, Mapping):
        return {key: render(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [render(each, names) for each in value]
    if not isinstance(value, str) or "${{" not in value:
        return value
    whole = _TEMPLATE.fullmatch(value.strip())
    if whole and value.strip().count("${{") == 1:
        return evaluate(parse(whole[1]), names)
    parts: list[str] = []
    position = 0
    for found in _TEMPLATE.finditer(value):
        parts += [value[position : found.start()], as_text(evaluate(parse(found[1]), names))]
        position = found.end()
        if sum(map(len, parts)) > TEXT_MAX:
            raise ExpressionError(f"The text is longer than {TEXT_MAX} characters.")
    return "".join((*parts, value[position:]))


def is_true(value: Any) -> bool:
    """As in Python: nothing, zero and what is empty are false."""
    return bool(value)


# --- what may be written -------------------------------------------------------------------------------------------

_NODES: Final = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult),
    *(ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In),
    *(ast.NotIn, ast.IfExp, ast.Call, ast.Subscript, ast.Slice, ast.Attribute, ast.Constant, ast.Name, ast.Load),
    *(ast.List, ast.Dict, ast.ListComp, ast.comprehension, ast.Store),
)


class _Checked:
    """What an expression refers to, found while it is judged."""

    def __init__(self) -> None:
        self.steps: set[str] = set()
        self.names: set[str] = set()
        self.inputs: set[str] = set()

    def check(self, node: ast.AST, bound: frozenset[str], depth: int) -> None:
        if depth > EXPRESSION_DEPTH_MAX:
            raise ExpressionError("is nested too deeply.")
        if not isinstance(node, _NODES):
            raise ExpressionError(f"must not use {_WORDS.get(type(node).__name__, type(node).__name__)}.")
        if isinstance(node, ast.ListComp):
            bound = self._comprehension(node, bound)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Name):
            self._name(node, bound)
        elif isinstance(node, ast.Constant | ast.Dict):
            _check_literal(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "inputs":
            self.inputs.add(node.attr)
        if isinstance(node, ast.Attribute | ast.Subscript) and _is_steps(node.value, bound):
            self._step(node)
            children: list[ast.AST] = []
        elif isinstance(node, ast.Call):
            children = list(node.args)
        else:
            children = list(ast.iter_child_nodes(node))
        if _is_steps(node, bound):
            raise ExpressionError("uses `steps` as a whole: name one, as in steps.build.")
        for child in children:
            self.check(child, bound, depth + 1)

    def _comprehension(self, node: ast.ListComp, bound: frozenset[str]) -> frozenset[str]:
        for generator in node.generators:
            if not isinstance(generator.target, ast.Name) or generator.is_async:
                raise ExpressionError("may go over a list with one name only.")
            if generator.target.id in NAMES or generator.target.id in FUNCTIONS:
                raise ExpressionError(f'must not use "{generator.target.id}" as a name of its own.')
            bound |= {generator.target.id}
        return bound

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            name = ast.unparse(node.func)
            raise ExpressionError(f"there is no function {short(name)}(); there are {', '.join(sorted(FUNCTIONS))}.")
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise ExpressionError(f"{node.func.id}() takes plain arguments only.")

    def _name(self, node: ast.Name, bound: frozenset[str]) -> None:
        if node.id not in NAMES and node.id not in bound:
            known = ", ".join(sorted(NAMES - {"true", "false", "null"}))
            raise ExpressionError(f'"{short(node.id)}" is not known; there are {known}.')
        self.names.add(node.id)

    def _step(self, node: ast.Attribute | ast.Subscript) -> None:
        key: Any = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        if not isinstance(key, str):
            raise ExpressionError("must name a step, as in steps.build; it cannot be computed.")
        self.steps.add(key)
        self.names.add("steps")


_WORDS: Final = {
    "Lambda": "lambda",
    "Pow": "the power operator",
    "JoinedStr": "f-strings",
    "NamedExpr": "assignments",
    "Set": "sets",
    "Tuple": "tuples",
    "Starred": "*",
    "Is": "`is`; write ==",
    "IsNot": "`is`; write !=",
}


def _check_literal(node: ast.Constant | ast.Dict) -> None:
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, str | int | float | bool | None):
            raise ExpressionError("may contain texts, numbers, true, false and null only.")
    elif not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys):
        raise ExpressionError("may contain objects whose keys are texts only.")


def _is_steps(node: ast.AST, bound: frozenset[str]) -> bool:
    return isinstance(node, ast.Name) and node.id == "steps" and "steps" not in bound


# --- what it is worth ----------------------------------------------------------------------------------------------


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    def __init__(self, names: Mapping[str, Any]) -> None:
        charged = {kind: self._charged(work) if kind in COMPARISONS else work for kind, work in OPERATORS.items()}
        super().__init__(operators=charged, names={**names, "true": True, "false": False, "null": None})
        self.functions = {name: self._charged(work) for name, work in FUNCTIONS.items()}
        self._steps_left = VALUES_MAX
        self._weights: dict[int, tuple[Any, int]] = {}
        """By identity, with the value, so that no other one gets its identity meanwhile."""

    def _eval(self, node: ast.AST) -> Any:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise ExpressionError("takes too long.")
        value = self.nodes[type(node)](node)
        if isinstance(value, str | list) and isinstance(node, ast.BinOp | ast.Call | ast.Subscript):
            # What it makes is kept until the end, so it is counted too.
            self._steps_left -= len(value) // 16
        return value

    def _charged(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Functions and comparisons look at all of a value, which may be large and asked for in a loop."""

        def call(*values: Any) -> Any:
            self._steps_left -= sum(map(self._weight, values))
            if self._steps_left < 0:
                raise ExpressionError("takes too long.")
            return work(*values)

        return call

    def _weight(self, value: Any) -> int:
        if not isinstance(value, str | list | dict):
            return 0
        if id(value) not in self._weights:
            self._weights[id(value)] = value, weight_of(value)
        return self._weights[id(value)][1]

    def _eval_attribute(self, node: ast.Attribute) -> Any:
        """A key of an object, and nothing else."""
        return self._key(self._eval(node.value), node.attr)

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        container, key = self._eval(node.value), self._eval(node.slice)
        if isinstance(key, slice):
            if not isinstance(container, str | list):
                raise ExpressionError("only a text or a list has a part.")
            return container[key]
        if isinstance(container, str | list):
            if isinstance(key, bool) or not isinstance(key, int):
                raise ExpressionError("a list is indexed by number.")
            return container[key]
        return self._key(container, key)

    def _key(self, container: Any, key: Any) -> Any:
        if not isinstance(container, dict):
            raise ExpressionError(f'there is no "{short(str(key))}" in {kind_of(container)}.')
        if key not in container:
            known = ", ".join(str(each) for each in list(container)[:8])
            raise ExpressionError(f'there is no "{short(str(key))}"; there is {known or "nothing"}.')
        return container[key]


def _texts(value: Any, location: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each, (*location, str(key)))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _texts(each, (*location, number))
