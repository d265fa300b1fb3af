"""Links between roles: in one process, over HTTP and over gRPC.

The networking libraries are imported on first use, so not in `homeport up`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from homeport.adapters.link.central_http import open_central_link as open_central_link
    from homeport.adapters.link.git_forward import CentralForward as CentralForward
    from homeport.adapters.link.grpc_orchion import orchion_service as orchion_service
    from homeport.adapters.link.grpc_services import serve_services as serve_services
    from homeport.adapters.link.grpc_site import nodes_service as nodes_service

_MODULES: Final = {
    "open_central_link": "central_http",
    "nodes_service": "grpc_site",
    "orchion_service": "grpc_orchion",
    "serve_services": "grpc_services",
    "CentralForward": "git_forward",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
