"""The site's reception of nodes, for every link: gRPC from other machines, or directly in the same process.

An authenticated node may act for itself alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.model.identity import Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.errors import NotFound
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.identity.node_authorization import NodeAuthorization
from homeport.ports import InferencePorts, NodeSession, Telemetry
from homeport.vocabulary import NodeId, SiteName


class Reception:
    """`ports.NodeReception` on the conductor and the open streams."""

    def __init__(
        self,
        conductor: Conductor,
        sessions: NodeSessions,
        *,
        heartbeat_seconds: float,
        authorization: NodeAuthorization,
        inference: InferencePorts | None = None,
    ) -> None:
        self._conductor = conductor
        self._sessions = sessions
        self._authorization = authorization
        self._inference = inference or InferencePorts()
        self.heartbeat_seconds = heartbeat_seconds
        self.site: SiteName = conductor.memory.site

    async def register(self, info: NodeInfo, peer: Peer | None = None) -> None:
        self._authorization.check(peer, info.id)
        await self._conductor.register(info)

    async def beat(self, node_id: NodeId, peer: Peer | None = None) -> None:
        self._authorization.check(peer, node_id)
        self._conductor.heartbeat(node_id)

    async def update(self, node_id: NodeId, capabilities: Capabilities, peer: Peer | None = None) -> None:
        self._authorization.check(peer, node_id)
        node = self._conductor.memory.nodes.get(node_id)
        if node is None:
            raise NotFound(f"node {node_id} is not registered here", hint="Register it first.")
        await self._conductor.register(replace(node.info, capabilities=capabilities))

    async def unregister(self, node_id: NodeId, peer: Peer | None = None) -> None:
        self._authorization.check(peer, node_id)
        if node_id not in self._conductor.memory.nodes:
            raise NotFound(f"there is no node {node_id}", hint="List them: homeport nodes list")
        reason = "the node was removed from its site"
        await self._conductor.forget(node_id, dismiss=lambda: self._sessions.dismiss(node_id, reason))

    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]:
        self._authorization.check(peer)
        seen = self._conductor.seen()
        nodes = self._conductor.memory.nodes
        return [replace(nodes[node_id], last_seen=seen[node_id]) for node_id in sorted(nodes)]

    async def node(self, node_id: NodeId, peer: Peer | None = None) -> Node | None:
        self._authorization.check(peer, node_id)
        return self._conductor.memory.nodes.get(node_id)

    async def measured(self, node_id: NodeId, found: Telemetry, peer: Peer | None = None) -> None:
        self._authorization.check(peer, node_id)
        self._conductor.heartbeat(node_id)
        self._sessions.take(node_id, found)

    def gpus(self) -> Mapping[NodeId, GpusOfNode]:
        if self._inference.gpus is None:
            return {}
        found = self._inference.gpus([(self.site, node_id) for node_id in self._conductor.memory.nodes])
        return {NodeId(node_id): each for (_, node_id), each in found.items()}

    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        await self._sessions.serve(
            session, self._conductor, check=lambda node_id: self._authorization.check(peer, node_id)
        )
