"""Modules that are loaded when they are used: `homeport up` without a gRPC port loads no gRPC, and without PostgreSQL
no driver of it."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from homeport.adapters.link.grpc_calls import GrpcCalls
    from homeport.adapters.link.grpc_services import Service


def late_service(module: str, name: str, *arguments: Any) -> "Service":
    """The service that the function `name` of `module` makes of these arguments."""

    def calls(calls: "GrpcCalls") -> dict[str, Any]:
        make: Callable[..., Service] = load_late(module, name)
        return make(*arguments)(calls)

    return calls


def load_late(module: str, name: str) -> Any:
    """What `name` is in `module`, which is imported now."""
    return getattr(import_module(module), name)
