"""Where sites open their tunnels, and people their sessions."""

from collections.abc import Awaitable, Callable
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from homeport.core.access.actions import Action, Actions, Audit, Level
from homeport.core.access.actions import Scope as Reach
from homeport.fleet.central.platform import CentralPlatform
from homeport.serving.capability import Routes
from homeport.serving.routing import Router
from homeport.tunnel.central.sessions import EXEC, PORT_FORWARD, ExecSessions, PortForwards
from homeport.tunnel.central.upgrading import tunnel_of_site
from homeport.vocabulary import SiteName

SITE_TUNNEL: Final = "/api/v1/sites/{site}/tunnel"
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", SITE_TUNNEL): Action("sites.tunnel", Level.MACHINE_ONLY, Reach.SITE, Audit.NONE),
    ("GET", "/api/v1/deployments/{deployment_id}/exec"): EXEC,
    ("GET", "/api/v1/deployments/{deployment_id}/port-forward"): PORT_FORWARD,
}
# fmt: on


def tunnel_routes(central: CentralPlatform) -> Routes:
    router = Router()
    add_raw(router, SITE_TUNNEL, _SiteTunnel(central))
    add_raw(router, "/api/v1/deployments/{deployment_id}/exec", ExecSessions(central))
    add_raw(router, "/api/v1/deployments/{deployment_id}/port-forward", PortForwards(central))
    return Routes(router, ACTIONS)


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
