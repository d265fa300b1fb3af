"""Opens the configured scheduling strategy: one of ours by its name, or a user's own as `package.module:Class`."""

import importlib

from homeport.core.jobs.strategies import DEFAULT, STRATEGIES, Strategy
from homeport.errors import InvalidInput, Problem


def open_strategy(name: str) -> Strategy:
    """Raises InvalidInput with a sentence that says what to do."""
    make = STRATEGIES.get(name or DEFAULT)
    if make is not None:
        return make()
    module_name, colon, class_name = name.partition(":")
    if not colon:
        raise _invalid(f'"{name}" is not a strategy')
    try:
        found = getattr(importlib.import_module(module_name), class_name)()
    except Exception as error:  # A user's own code may raise anything while it is imported or created.
        raise _invalid(f"{name} cannot be used: {type(error).__name__}: {error}") from error
    if not callable(getattr(found, "rank", None)):
        raise _invalid(f"{name} has no method rank(job, node)")
    strategy: Strategy = found
    return strategy


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(
        problems=[Problem("job_strategy", message)],
        hint=f"Choose one of {', '.join(STRATEGIES)}, or name a class of your own as package.module:Class.",
    )
