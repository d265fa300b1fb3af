"""Steps of the user's own kinds: classes that central was started with, as `--step-plugin NAME=package.module:Class`.

They are trusted with everything that central may do. What one raises or returns harms its own step alone.
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.limits import NAME_PATTERN
from homeport.core.values.patterns import matches
from homeport.errors import HomeportError, InvalidInput, Problem
from homeport.log import get_log
from homeport.pipelines.steps.work import Work

log = get_log("homeport.pipelines")

NOT_HERE: Final = "UNKNOWN_PLUGIN"
FAILED: Final = "PLUGIN_FAILED"
WORDS_MAX: Final = 500


class StepPlugin(Protocol):
    async def carry_out(self, work: Work) -> Outcome:
        """Until it has ended. `work.action` is the step's `with`. Called again with an equal `work.key` when central
        was stopped meanwhile; `work.is_resumed` then says so."""
        ...

    async def stop(self, work: Work) -> None:
        """`carry_out` was cancelled, since its run was, or its time is over: ends what it has begun elsewhere."""
        ...


def open_plugins(classes: Mapping[str, str]) -> Mapping[str, StepPlugin]:
    """Raises InvalidInput with a sentence that says what to do."""
    return {name: _opened(name, place) for name, place in classes.items()}


class PluginSteps:
    def __init__(self, plugins: Mapping[str, StepPlugin]) -> None:
        self._plugins = plugins

    def reference(self, work: Work) -> str:
        return ""

    async def carry_out(self, work: Work) -> Outcome:
        name = str(work.action["name"])
        plugin = self._plugins.get(name)
        if plugin is None:
            return Outcome(failure=Failure(NOT_HERE, missing(name, self._plugins)), is_final=True)
        try:
            return _checked(await plugin.carry_out(_given(work)))
        except HomeportError:
            raise
        except Exception as error:  # a plugin may raise anything; its step alone fails
            log.exception("step plugin failed", plugin=name, run=work.run.id, step=work.step.name)
            return Outcome(failure=Failure(FAILED, f"The plugin {name} failed: {_in_words(error)}"))

    async def stop(self, work: Work) -> None:
        name = str(work.action["name"])
        try:
            if name in self._plugins:
                await self._plugins[name].stop(_given(work))
        except HomeportError:
            raise
        except Exception:  # a plugin may raise anything; the run is cancelled all the same
            log.exception("step plugin not stopped", plugin=name, run=work.run.id, step=work.step.name)


def missing(name: str, known: Mapping[str, object]) -> str:
    there = f"it has {', '.join(sorted(known))}" if known else "it has none"
    return f"central was not started with a step plugin {name}; {there}"


def _opened(name: str, place: str) -> StepPlugin:
    module_name, colon, class_name = place.partition(":")
    if not colon or not matches(NAME_PATTERN, name):
        raise _invalid(f"{name}={place} is not NAME=package.module:Class")
    try:
        found = getattr(importlib.import_module(module_name), class_name)()
    except Exception as error:  # A user's own code may raise anything while it is imported or created.
        raise _invalid(f"{place} cannot be used: {_in_words(error)}") from error
    for method in ("carry_out", "stop"):
        if not callable(getattr(found, method, None)):
            raise _invalid(f"{place} has no method {method}(work)")
    plugin: StepPlugin = found
    return plugin


def _given(work: Work) -> Work:
    return replace(work, action=work.action.get("with") or {})


def _checked(outcome: Outcome) -> Outcome:
    """The output as the record will have it. Raises where it is not an Outcome, or its output is not JSON."""
    if not isinstance(outcome, Outcome):
        raise TypeError(f"it returned {type(outcome).__name__}, not an Outcome")
    output = json.loads(json.dumps(outcome.result.output, allow_nan=False))
    return replace(outcome, result=replace(outcome.result, output=output, log=str(outcome.result.log)))


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:WORDS_MAX]}"


def _invalid(message: str) -> InvalidInput:
    hint = "Name a class of your own as NAME=package.module:Class, where central's Python finds it."
    return InvalidInput(problems=[Problem("step_plugins", message)], hint=hint)
