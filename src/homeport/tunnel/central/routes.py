"""Where sites open their tunnels, and people their sessions."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, cast

import anyio
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from homeport.core.access.actions import Action, Actions, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.core.data import DataVolume, parse_volume
from homeport.core.model.node import Node
from homeport.core.tunnel.targets import VolumesTarget
from homeport.errors import InvalidInput, PeerUnavailable
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.overview import find_node
from homeport.fleet.shared.scope import seen_by
from homeport.serving.bodies.fleet import VolumeBody, VolumesBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import READ_NODES
from homeport.serving.routing import Router
from homeport.tunnel.central.sessions import EXEC, PORT_FORWARD, ExecSessions, PortForwards
from homeport.tunnel.central.upgrading import tunnel_of_site
from homeport.vocabulary import SiteName
from homeport.wire.tunnel import VOLUMES_BYTES_MAX, decode_volumes

VOLUMES_SECONDS_MAX: Final = 20.0
SITE_TUNNEL: Final = "/api/v1/sites/{site}/tunnel"
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", SITE_TUNNEL): Action("sites.tunnel", Level.MACHINE_ONLY, Reach.SITE, Audit.NONE),
    ("GET", "/api/v1/nodes/{node_id}/volumes"): READ_NODES,
    ("GET", "/api/v1/deployments/{deployment_id}/exec"): EXEC,
    ("GET", "/api/v1/deployments/{deployment_id}/port-forward"): PORT_FORWARD,
}
# fmt: on


def tunnel_routes(central: CentralPlatform) -> Routes:
    router = Router()
    add_raw(router, SITE_TUNNEL, _SiteTunnel(central))
    add_raw(router, "/api/v1/deployments/{deployment_id}/exec", ExecSessions(central))
    add_raw(router, "/api/v1/deployments/{deployment_id}/port-forward", PortForwards(central))
    _volumes(router, central)
    return Routes(router, ACTIONS)


def _volumes(router: Router, central: CentralPlatform) -> None:
    @router.get(
        "/api/v1/nodes/{node_id}/volumes",
        tags=["nodes"],
        summary="List the data volumes of a node",
        response_model=VolumesBody,
        responses={404: {}, 409: {}, 503: {}},
    )
    async def list_volumes(caller: CallerOf, node_id: Annotated[str, Path(max_length=200)]) -> VolumesBody:
        """What deployments have stored, also those that were deleted. Asked of the node when it is called."""
        async with seen_by(caller, central.store).read() as reader:
            node = await find_node(reader, node_id)
        try:
            with anyio.fail_after(VOLUMES_SECONDS_MAX):
                content = await _read_volumes(central, node)
        except TimeoutError as error:
            message = f"Node {node.id} did not list its volumes within {VOLUMES_SECONDS_MAX:g} s."
            raise PeerUnavailable(message, hint=f"See  homeport nodes show {node.id}") from error
        try:
            found = decode_volumes(content)
        except InvalidInput as error:  # The node's fault, not the caller's.
            message = f"Node {node.id} answered in a form that this central cannot read: {error}"
            raise PeerUnavailable(message, hint="Upgrade the older of the two.") from error
        return VolumesBody(volumes=[_volume_body(each) for each in found])


async def _read_volumes(central: CentralPlatform, node: Node) -> bytes:
    content = b""
    async with central.tunnels.open(node.site, VolumesTarget(node.id)) as stream:
        await stream.end()
        while (part := await stream.read()) and len(content) <= VOLUMES_BYTES_MAX:
            content += part
    return content


def _volume_body(volume: DataVolume) -> VolumeBody:
    found = parse_volume(volume.name)
    owner, name = ("", volume.name) if found is None else found
    return VolumeBody(volume=volume.name, owner=owner, name=name, used=volume.is_used)


def add_raw(router: Router, path: str, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
    # Starlette accepts any object as an ASGI application, which its type hints do not allow.
    endpoint = cast("Callable[[Request], Awaitable[Response]]", app)
    router.add_route(path, endpoint, methods=["GET"], include_in_schema=False)


class _SiteTunnel:
    def __init__(self, central: CentralPlatform) -> None:
        self._tunnels = central.tunnels.connected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = SiteName(scope["path_params"]["site"])
        async with tunnel_of_site(scope, site) as connection:
            forget = self._tunnels.attach(site, connection)
            try:
                await connection.closed()
            finally:
                forget()
