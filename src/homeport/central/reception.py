"""The node registry as central shows it over gRPC: every node of every site. Nodes themselves join a site."""

from collections.abc import Sequence
from typing import NoReturn

from homeport.core.model.node import Capabilities, Node, NodeInfo
from homeport.errors import Refused
from homeport.ports import NodeSession, Store
from homeport.vocabulary import NodeId, SiteName


class FleetReception:
    """`ports.NodeReception` that only lists."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.heartbeat_seconds = 5.0
        self.site = SiteName("")

    async def list_nodes(self) -> Sequence[Node]:
        async with self._store.read() as reader:
            return await reader.nodes()

    async def register(self, info: NodeInfo) -> None:
        _refuse()

    async def beat(self, node_id: NodeId) -> None:
        _refuse()

    async def update(self, node_id: NodeId, capabilities: Capabilities) -> None:
        _refuse()

    async def unregister(self, node_id: NodeId) -> None:
        _refuse()

    async def converse(self, session: NodeSession) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise Refused("Nodes join a site, not central: start it with  homeport node --site HOST:PORT")
