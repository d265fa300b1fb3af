"""Where nodes open their tunnels, over the network or from the same process."""

from collections.abc import Callable
from functools import partial

import anyio

from homeport.adapters.tunnel.inprocess import open_pair
from homeport.core.model.identity import Peer
from homeport.errors import NotAuthorized, PeerUnavailable
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.ports import DialTunnel, TunnelConnection
from homeport.site.node_reception import Reception
from homeport.vocabulary import NodeId


class NodeTunnels:
    """A node is believed for itself alone, as on its other connection, and its acceptance is checked again and
    again."""

    def __init__(self, reception: Reception, tunnels: OpenTunnels[NodeId]) -> None:
        self._reception = reception
        self._tunnels = tunnels
        self._peers: dict[NodeId, Peer | None] = {}
        """Who has opened them over the network."""
        self._attached = anyio.Event()

    async def admit(self, node_id: NodeId, peer: Peer | None) -> None:
        """Raises NotAuthorized, and PeerUnavailable for a node that is not registered, or not yet."""
        if await self._reception.node(node_id, peer) is None:
            raise PeerUnavailable(f"node {node_id} is not registered here", hint="It retries automatically.")
        self._peers[node_id] = peer

    def attach(self, node_id: NodeId, connection: TunnelConnection) -> Callable[[], None]:
        self._attached.set()
        return self._tunnels.attach(node_id, connection)

    async def until_attached(self) -> None:
        """Returns when a node has a tunnel open over the network. One in this process has no acceptance to lose."""
        while not self._open():
            self._attached = anyio.Event()
            await self._attached.wait()

    async def check(self) -> None:
        """Ends the tunnels of nodes that were removed, or are no longer accepted."""
        for node_id in self._open():
            try:
                await self.admit(node_id, self._peers[node_id])
            except (NotAuthorized, PeerUnavailable) as error:
                self._tunnels.dismiss(node_id, str(error))

    def dial(self, node_id: NodeId) -> DialTunnel:
        """For a node in the same process."""
        return partial(open_pair, upper="the site", lower=f"node {node_id}", attach=partial(self.attach, node_id))

    def _open(self) -> list[NodeId]:
        return [node_id for node_id in self._peers if node_id in self._tunnels]
