"""How a site reaches central's end of its tunnel, and a node that of its site."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from homeport.adapters.local_access import KeyKind, find
from homeport.adapters.network.http_client import reason_of
from homeport.adapters.tunnel.connection import MuxConnection
from homeport.adapters.tunnel.dial import ALPN, Door, UpgradeRefused, Verify, dial
from homeport.adapters.tunnel.entry import tunnel_path
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.errors import PeerIncompatible, PeerUnavailable, Refused
from homeport.ports import DialTunnel, TunnelConnection
from homeport.vocabulary import NodeId, SiteName

NewContext = Callable[[], ssl.SSLContext]
"""Called for each connection, so that the next one uses a renewed certificate."""


def to_central(
    url: str,
    site: SiteName,
    *,
    tls: NewContext | None = None,
    verify: Verify | None = None,
    local_keys: Path | None = None,
) -> DialTunnel:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)

    def door() -> Door:
        return Door(
            host=parts.hostname or "",
            port=port,
            path=f"{parts.path.rstrip('/')}/api/v1/sites/{site}/tunnel",
            headers={} if tls is not None else _local_key(local_keys, parts.hostname or "", port),
            tls=None if tls is None else _for_http1(tls()),
            server_name=SERVER_NAME,
            verify=verify,
        )

    return _dialling(door, peer="central")


def to_site(
    host: str,
    port: int,
    node_id: NodeId,
    *,
    tls: NewContext | None = None,
    verify: Verify | None = None,
    local_keys: Path | None = None,
) -> DialTunnel:
    def check(ssl_object: ssl.SSLObject) -> None:
        assert verify is not None
        verify(ssl_object)
        if ssl_object.selected_alpn_protocol() != ALPN:
            raise PeerIncompatible("The site knows no tunnels. Upgrade the site.")

    def door() -> Door:
        return Door(
            host=host,
            port=port,
            path=tunnel_path(node_id),
            headers={} if tls is not None else _local_key(local_keys, host, port),
            tls=None if tls is None else _for_http1(tls()),
            verify=None if verify is None else check,
        )

    return _dialling(door, peer="the site")


def _dialling(door: Callable[[], Door], *, peer: str) -> DialTunnel:
    @asynccontextmanager
    async def dial_tunnel() -> AsyncIterator[TunnelConnection]:
        connection = MuxConnection(peer=peer, is_opener=False)
        try:
            await dial(door(), connection)
        except UpgradeRefused as error:
            raise _refused(peer, error) from error
        except Refused as error:
            raise PeerUnavailable(f"what answers as {peer} is not trusted: {error}") from error
        except (OSError, TimeoutError) as error:
            why = reason_of(error) if error.errno else str(error) or "no answer in time"
            raise PeerUnavailable(f"no tunnel to {peer}: {why}") from error
        try:
            yield connection
        finally:
            await connection.aclose("it stops")

    return dial_tunnel


def _refused(peer: str, error: UpgradeRefused) -> PeerUnavailable:
    problem = _problem(error.body)
    if error.status == 404 and problem.get("code") in {None, "not-found"}:
        return PeerIncompatible(f"{peer} knows no tunnels: upgrade it")
    return PeerUnavailable(f"{peer} refused the tunnel: {problem.get('detail') or error}")


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _local_key(folder: Path | None, host: str, port: int) -> dict[str, str]:
    """Read each time: it changes with each start of the role above."""
    found = find(folder, port, KeyKind.MACHINE)
    return {"Authorization": f"Bearer {found.key}"} if found is not None and found.opens(host) else {}


def _for_http1(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols([ALPN])
    return context
