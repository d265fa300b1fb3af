"""The tunnel at central."""

from typing import Final

from homeport.capability.central import CentralCapability, CentralPart
from homeport.fleet.central.platform import CentralPlatform
from homeport.tunnel.central.routes import tunnel_routes
from homeport.tunnel.metrics import TunnelMetrics


def _part(central: CentralPlatform) -> CentralPart:
    return CentralPart(
        routes=(tunnel_routes(central),), metrics=(TunnelMetrics({"site": central.tunnels.connected}),)
    )


TUNNEL: Final = CentralCapability("tunnel", _part)
