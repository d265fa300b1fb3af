"""Nodes join a site: central refuses those that dial it, with that sentence. `registry_calls` lists every node of
every site, in place of the calls of a reception."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

from homeport.core.inference.engines.gpus import GpusOfNode
from homeport.core.model.identity import Peer
from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.errors import Refused
from homeport.ports import NodeSession, Telemetry
from homeport.vocabulary import NodeId, SiteName


class NoReception:
    """`ports.NodeReception` that takes no node."""

    heartbeat_seconds = 5.0
    site = SiteName("")

    async def list_nodes(self, peer: Peer | None = None) -> Sequence[Node]:
        _refuse()

    async def node(self, node_id: NodeId, peer: Peer | None = None) -> Node | None:
        _refuse()

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


def _refuse() -> NoReturn:
    raise Refused("Nodes join a site, not central: start it with  homeport node --site HOST:PORT")
