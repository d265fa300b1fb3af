"""Where log lines are sent on to. The receivers, with their HTTP client, are imported where there is one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homeport.logs.outputs.receivers import open_outputs as open_outputs


def __getattr__(name: str) -> Any:
    if name != "open_outputs":
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.receivers"), name)
