"""What one gRPC port serves: a list of services, each the calls that a role really has."""

import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from homeport.adapters.link.grpc_calls import GrpcCalls, OnRefused, People
from homeport.adapters.link.grpc_connection import Verify
from homeport.adapters.link.grpc_server import serve_grpc
from homeport.adapters.local_access import LocalKeys
from homeport.adapters.tunnel.entry import TunnelEntry, TunnelReception

Service = Callable[[GrpcCalls], dict[str, Any]]
"""The calls of one service by path, for one connection."""


def serve_services(
    services: Sequence[Service],
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    verify: Verify | None = None,
    local: LocalKeys | None = None,
    people: People | None = None,
    on_refused: OnRefused | None = None,
    tunnels: TunnelReception | None = None,
) -> AbstractAsyncContextManager[int]:
    """Listens on `host:port`; yields the port. Port 0 takes any free one. Raises Refused when it is in use.

    With `tls` (which should request a client certificate) every peer is authenticated by `verify`; a refused one gets
    the reason and is disconnected. With `local`, each call has to present one of these keys. `people` authenticates
    the callers of people's calls; with a `tls` that only asks for a certificate, they need none. `on_refused` is
    called for every refused peer. `tunnels` are accepted where they are given.
    """

    def enter(host: str, on_made: Callable[[TunnelEntry], None]) -> TunnelEntry:
        assert tunnels is not None
        return TunnelEntry(tunnels, host, verify=verify, local=local, on_refused=on_refused, on_made=on_made)

    return serve_grpc(
        lambda connection: {
            path: call
            for service in services
            for path, call in service(
                GrpcCalls(connection, local=local, people=people, on_refused=on_refused)
            ).items()
        },
        address,
        tls=tls,
        verify=verify,
        tunnels=None if tunnels is None else enter,
        takes_tokens=people is not None,
    )
