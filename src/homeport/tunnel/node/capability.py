"""The tunnel of a node to its site."""

from functools import partial
from typing import Final

from homeport.capability.node import NodeCapability, NodePart, NodePlatform
from homeport.tunnel.keeping import keep_tunnel
from homeport.tunnel.node.answering import NodeStreams


def _part(node: NodePlatform) -> NodePart:
    if node.dial_site is None:
        return NodePart()
    return NodePart(loops=(partial(keep_tunnel, node.dial_site, NodeStreams(node).answer, to="site"),))


TUNNEL: Final = NodeCapability("tunnel", _part)
