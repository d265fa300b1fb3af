"""Asking a role as the user who started it does."""

from typing import Any

import grpc
import grpc.aio

from homeport.central.app import CentralApp
from homeport.site.app import SiteApp


def local_key(role: CentralApp | SiteApp) -> dict[str, str]:
    """What a command of the user who started the role sends."""
    return {"Authorization": f"Bearer {role.parts.local.person}"}


def person_key(role: CentralApp | SiteApp) -> tuple[tuple[str, str], ...]:
    """What a program of the same user sends with a gRPC call."""
    return (("authorization", f"Bearer {role.parts.local.person}"),)


def machine_key(role: CentralApp | SiteApp) -> tuple[tuple[str, str], ...]:
    """What a node of the same user sends with a gRPC call."""
    return (("authorization", f"Bearer {role.parts.local.machine}"),)


class _WithKey(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    """Adds the key to every call. A stream is given it by hand: an intercepted one leaves a task of grpc's behind."""

    def __init__(self, role: CentralApp | SiteApp) -> None:
        self._key = person_key(role)

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(*(client_call_details.metadata or ()), *self._key)
        return await continuation(client_call_details._replace(metadata=metadata), request)


def local_channel(role: CentralApp | SiteApp, *, port: int | None = None) -> grpc.aio.Channel:
    """To the role's gRPC port on loopback, or to another port of it."""
    interceptors: Any = [_WithKey(role)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{port or role.grpc_port}", interceptors=interceptors)
