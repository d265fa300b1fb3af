"""Node liveness: three missed heartbeats make a node stale, six make it lost."""

from datetime import datetime

from homeport.core.model.event import Site
from homeport.core.model.node import Node
from homeport.vocabulary import Liveness


def liveness(silent_seconds: float, *, stale_seconds: float, lost_seconds: float) -> Liveness:
    if silent_seconds >= lost_seconds:
        return Liveness.LOST
    if silent_seconds >= stale_seconds:
        return Liveness.STALE
    return Liveness.LIVE


def liveness_at_central(node: Node, *, is_site_reachable: bool) -> Liveness:
    """A node's liveness as central may show it: once its site is unreachable, the site's last report ages."""
    if is_site_reachable or node.liveness is Liveness.LOST:
        return node.liveness
    return Liveness.UNKNOWN


def silent_since(node: Node, site: Site | None, *, is_site_reachable: bool) -> datetime | None:
    """Since when a node that is not live has sent no heartbeat; None while it is live."""
    seen = liveness_at_central(node, is_site_reachable=is_site_reachable)
    if seen is Liveness.LIVE:
        return None
    if seen is Liveness.UNKNOWN and site is not None and site.last_seen is not None:
        return min(site.last_seen, node.last_seen)
    return node.last_seen
