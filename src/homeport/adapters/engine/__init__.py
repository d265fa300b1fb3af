"""Adapters of inference engines: one module says how each engine is spoken to, `http` speaks.

They are imported with the first engine: most roles have none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from homeport.adapters.engine.engines import DIALECTS as DIALECTS
    from homeport.adapters.engine.engines import connect as connect

_NAMES: Final = frozenset({"DIALECTS", "connect"})


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.engines"), name)
