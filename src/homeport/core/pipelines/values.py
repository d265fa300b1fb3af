"""The inputs of a run: judged against what its pipeline declares."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.core.parameters import suggest
from homeport.core.pipelines.functions import ExpressionError, check_size
from homeport.core.pipelines.limits import INPUTS_BYTES_MAX
from homeport.core.pipelines.model import Input, InputType, Pipeline
from homeport.errors import InvalidInput, Problem

_TYPES: Final[Mapping[InputType, tuple[tuple[type, ...], str]]] = {
    InputType.STRING: ((str,), "text"),
    InputType.NUMBER: ((int, float), "a number"),
    InputType.BOOLEAN: ((bool,), "true or false"),
    InputType.LIST: ((list,), "a list"),
    InputType.OBJECT: ((dict,), "a mapping (name: value)"),
}


def wrong_type(value: Any, wanted: InputType) -> str | None:
    types, word = _TYPES[wanted]
    is_right = isinstance(value, types) and (wanted is InputType.BOOLEAN or not isinstance(value, bool))
    return None if is_right else f"must be {word}."


def check_inputs(pipeline: Pipeline, given: Mapping[str, Any]) -> dict[str, Any]:
    """All inputs, with defaults. Raises InvalidInput with every problem."""
    problems = list(_problems(pipeline.inputs, given)) or list(_unbounded(given))
    if not problems and len(json.dumps(given)) > INPUTS_BYTES_MAX:
        problems = [Problem("inputs", f"are larger than {INPUTS_BYTES_MAX // 1024} KiB.")]
    if problems:
        raise InvalidInput(problems=problems)
    return {name: given.get(name, each.default) for name, each in pipeline.inputs.items()}


def _problems(inputs: Mapping[str, Input], given: Mapping[str, Any]) -> Iterator[Problem]:
    for name in given:
        if name not in inputs:
            yield Problem(f"inputs.{name[:100]}", f"is not an input of this pipeline.{suggest(name, list(inputs))}")
    for name, each in inputs.items():
        if name not in given:
            if each.is_required:
                yield Problem(f"inputs.{name}", "is missing.")
        elif why := wrong_type(given[name], each.type):
            yield Problem(f"inputs.{name}", why)


def _unbounded(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Before anything writes them as JSON, which fails for what is nested too deeply, or is not a number."""
    for name, value in given.items():
        try:
            check_size(value)
        except ExpressionError as error:
            yield Problem(f"inputs.{name}", f"cannot be used: {error}")


def from_json(text: str) -> Any:
    """What a program or a server has written, within the bounds of every value; None where it is not JSON."""
    try:
        found = json.loads(text, parse_constant=lambda name: None)
        check_size(found)
    except (ValueError, RecursionError, ExpressionError):
        return None
    return found


def from_text(text: str, wanted: InputType) -> Any:
    """The value of a command line argument; the text itself where it is not of the type."""
    if wanted is InputType.STRING:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
