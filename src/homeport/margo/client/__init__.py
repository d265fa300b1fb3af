"""A site as a client of any Margo Workload Fleet Manager. Imported on first use: most sites follow Git."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homeport.margo.client.follow import open_margo_client as open_margo_client


def __getattr__(name: str) -> Any:
    if name != "open_margo_client":
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.follow"), name)
