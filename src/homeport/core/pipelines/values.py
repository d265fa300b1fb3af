"""The inputs of a run: judged against what its pipeline declares."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from homeport.core.parameters import suggest
from homeport.core.pipelines.limits import INPUTS_BYTES_MAX
from homeport.core.pipelines.model import Input, InputType, Pipeline
from homeport.core.values.json_values import unfit
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
    problems = list(_problems(pipeline.inputs, given))
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
        elif why := unfit(given[name]):
            yield Problem(f"inputs.{name}", f"{why}.")


def from_text(text: str, wanted: InputType) -> Any:
    """The value of a command line argument; the text itself where it is not of the type."""
    if wanted is InputType.STRING:
        return text
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return text
