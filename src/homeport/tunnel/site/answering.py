"""What a site does with a stream that central opens: on to a node, or to an endpoint that the site offers, by
itself or through the tunnel of a node."""

from homeport.core.tunnel.targets import Endpoint, EngineTarget, ExecTarget, ForwardTarget, Target, VolumesTarget
from homeport.errors import NotFound, PeerUnavailable, Refused
from homeport.fleet.site.platform import SitePlatform
from homeport.ports import IncomingStream
from homeport.tunnel.relaying import relay
from homeport.tunnel.sockets import connect_and_relay
from homeport.wire.tunnel import decode_target, encode_target


class SiteStreams:
    def __init__(self, site: SitePlatform) -> None:
        self._site = site

    async def answer(self, stream: IncomingStream) -> None:
        target = decode_target(stream.header)
        match target:
            case Endpoint():
                await self._to_endpoint(stream, target)
            case ExecTarget() | ForwardTarget() | VolumesTarget():
                await self._to_node(stream, target)
            case EngineTarget():
                raise Refused("A site decides itself which of its engines are loaded.")

    async def _to_node(self, stream: IncomingStream, target: Target) -> None:
        node_id, site = target.node_id, self._site
        if node_id not in site.nodes():
            raise NotFound(f"Site {site.site} has no node {node_id}.", hint="List them:  homeport nodes list")
        if node_id not in site.node_tunnels:
            raise PeerUnavailable(
                f"Node {node_id} has no tunnel to its site: it is offline, or older than its site.",
                hint=f"See  homeport nodes show {node_id}",
            )
        async with site.node_tunnels.open(node_id, encode_target(target)) as onwards:
            await stream.accept(onwards.accepted)
            await relay(stream, onwards)

    async def _to_endpoint(self, stream: IncomingStream, target: Endpoint) -> None:
        if not self._site.endpoints.has(target):
            raise Refused(
                f"Site {self._site.site} offers nothing at {target}.",
                hint="Central reaches only what a capability of the site offers, such as its inference engines.",
            )
        if target.node_id:
            await self._to_node(stream, target)
        else:
            await connect_and_relay(stream, target, {})
