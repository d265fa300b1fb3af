"""The node registry of central over gRPC: every node of every site. Nodes themselves join a site."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.model.identity import IdentityKind, Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.errors import NotAuthorized, Refused
from homeport.identity.node_authorization import Policy, refuse_every_peer
from homeport.ports import NodeSession, Store, Telemetry
from homeport.vocabulary import NodeId, SiteName


class FleetReception:
    """`ports.NodeReception` that only lists."""

    def __init__(self, store: Store, *, refusal: Policy = refuse_every_peer) -> None:
        self._store = store
        self._refusal = refusal
        self.heartbeat_seconds = 5.0
        self.site = SiteName("")

    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]:
        """A site with a certificate sees only its own nodes."""
        if peer is not None:
            self._check(peer)
        async with self._store.read() as reader:
            return await reader.nodes(None if peer is None else peer.site)

    async def node(self, node_id: NodeId, peer: Peer | None = None) -> Node | None:
        return next((node for node in await self.list_nodes(peer) if node.id == node_id), None)

    async def register(self, info: NodeInfo, peer: Peer | None = None) -> None:
        _refuse()

    async def beat(self, node_id: NodeId, peer: Peer | None = None) -> None:
        _refuse()

    async def update(self, node_id: NodeId, capabilities: Capabilities, peer: Peer | None = None) -> None:
        _refuse()

    async def unregister(self, node_id: NodeId, peer: Peer | None = None) -> None:
        _refuse()

    async def measured(self, node_id: NodeId, found: Telemetry, peer: Peer | None = None) -> None:
        _refuse()

    def gpus(self) -> Mapping[NodeId, GpusOfNode]:
        return {}

    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        _refuse()

    def _check(self, peer: Peer) -> None:
        is_site = peer.kind is IdentityKind.CLIENT and peer.site is not None
        why = self._refusal(peer) if is_site else f"{peer.spiffe_id} is not a site."
        if why is not None:
            raise NotAuthorized(why, target="nodes")


def _refuse() -> NoReturn:
    raise Refused("Nodes join a site, not central: start it with  homeport node --site HOST:PORT")
