"""The tunnel at a site: one to central, and the ends of those of its nodes."""

from functools import partial
from typing import Final

from homeport.capability.site import SiteCapability, SitePart
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.fleet.site.platform import SitePlatform
from homeport.tunnel.keeping import keep_tunnel
from homeport.tunnel.metrics import TunnelMetrics
from homeport.tunnel.site.answering import SiteStreams


def _part(site: SitePlatform) -> SitePart:
    upwards: OpenTunnels[str] = OpenTunnels()
    metrics = (TunnelMetrics({"node": site.node_tunnels, "central": upwards}),)
    if site.dial_central is None:
        return SitePart(metrics=metrics)
    keep = partial(keep_tunnel, site.dial_central, SiteStreams(site).answer, to="central", kept=upwards)
    return SitePart(metrics=metrics, loops=(keep,))


TUNNEL: Final = SiteCapability("tunnel", _part)
