"""Where nodes arrive, through whichever link: gRPC from other machines, or straight from the same process.

A node that the link has authenticated is believed for itself alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from homeport.core.model.identity import Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.errors import NotFound
from homeport.fleet.conductor import Conductor
from homeport.fleet.doorkeeper import Doorkeeper
from homeport.fleet.sessions import Sessions
from homeport.ports import NodeSession
from homeport.vocabulary import NodeId, SiteName


class Reception:
    """`ports.NodeReception` on the conductor and the open streams."""

    def __init__(
        self, conductor: Conductor, sessions: Sessions, *, heartbeat_seconds: float, door: Doorkeeper
    ) -> None:
        self._conductor = conductor
        self._sessions = sessions
        self._door = door
        self.heartbeat_seconds = heartbeat_seconds
        self.site: SiteName = conductor.memory.site

    async def register(self, info: NodeInfo, peer: Peer | None = None) -> None:
        self._door.check(peer, info.id)
        await self._conductor.register(info)

    async def beat(self, node_id: NodeId, peer: Peer | None = None) -> None:
        self._door.check(peer, node_id)
        self._conductor.hear(node_id)

    async def update(self, node_id: NodeId, capabilities: Capabilities, peer: Peer | None = None) -> None:
        self._door.check(peer, node_id)
        node = self._conductor.memory.nodes.get(node_id)
        if node is None:
            raise NotFound(f"node {node_id} is not registered here", hint="Register it first.")
        await self._conductor.register(replace(node.info, capabilities=capabilities))

    async def unregister(self, node_id: NodeId, peer: Peer | None = None) -> None:
        self._door.check(peer, node_id)
        if node_id not in self._conductor.memory.nodes:
            raise NotFound(f"there is no node {node_id}", hint="List them: homeport nodes list")
        # The farewell goes first: a beat in between would be refused, and the node would come straight back.
        self._sessions.dismiss(node_id, "the node was removed from its site")
        await self._conductor.forget(node_id)

    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]:
        self._door.check(peer)
        seen = self._conductor.seen()
        nodes = self._conductor.memory.nodes
        return [replace(nodes[node_id], last_seen=seen[node_id]) for node_id in sorted(nodes)]

    async def converse(self, session: NodeSession, peer: Peer | None = None) -> None:
        await self._sessions.serve(session, self._conductor, check=lambda node_id: self._door.check(peer, node_id))
