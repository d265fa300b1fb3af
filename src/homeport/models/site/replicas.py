"""The replicas of a site's nodes: bound here as nodes announce them, and reported to central.

Every announcement is the node's whole list, so a lost one costs nothing. A node that is away keeps its replicas: its
engines may well go on. One that is lost or removed has none. Engines of other machines are reached through the tunnel
of their node. Central gets the whole list too, at every change and at intervals, since it keeps it in memory only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final

import anyio

from homeport.core.inference.engines.handoff import to_data
from homeport.core.inference.replicas import Reached, assigned
from homeport.core.tunnel.targets import Endpoint
from homeport.errors import HomeportError, PeerIncompatible, PeerUnavailable
from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.fleet.site.platform import SitePlatform
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.network import network_id
from homeport.ports import EngineHandoffs, OpenStream, TunnelStream
from homeport.vocabulary import Feature, Liveness, NodeId
from homeport.wire.tunnel import encode_target

log = get_log("homeport.models")

TOPIC: Final = "replicas"
TELL_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1.0
OLD_CENTRAL_SECONDS: Final = 300.0
INCOMPLETE_SECONDS_MAX: Final = 15.0
"""How long after its start a site waits for the lists of nodes that live. Until then it tells central nothing, which
goes on with the engines that it knows."""
LOOK_SECONDS: Final = 0.2
PROBLEMS_MAX: Final = 32
"""Replicas that cannot be used are logged, not without end."""


@dataclass(frozen=True, slots=True)
class ThroughNode:
    """`ports.OpenStream`, as a value: two that lead to the same engine are equal."""

    tunnels: OpenTunnels[NodeId]
    node_id: NodeId
    endpoint: Endpoint

    def __call__(self) -> AbstractAsyncContextManager[TunnelStream]:
        return self.tunnels.open(self.node_id, encode_target(self.endpoint))


class SiteReplicas:
    def __init__(self, site: SitePlatform, on_settled: Callable[[Sequence[Reached]], None]) -> None:
        self._site = site
        self._on_settled = on_settled
        self._network = network_id()
        self._announced: dict[NodeId, EngineHandoffs] = {}
        self._bound: dict[tuple[str, str], Reached] = {}
        self._problems: tuple[str, ...] = ()
        self._changed = anyio.Event()
        self._began = site.clock.monotonic()
        self._is_complete = False

    def is_complete(self) -> bool:
        """Whether every node that lives has announced its engines since the start of the site."""
        if not self._is_complete:
            awaited = (
                node_id
                for node_id, node in self._site.nodes().items()
                if node.liveness is Liveness.LIVE and node.info.protocol.has(Feature.REPLICAS)
            )
            waited = self._site.clock.monotonic() - self._began
            self._is_complete = waited > INCOMPLETE_SECONDS_MAX or all(each in self._announced for each in awaited)
        return self._is_complete

    def announce(self, node_id: NodeId, message: EngineHandoffs) -> None:
        self._announced[node_id] = message
        self._settle()

    async def run(self) -> None:
        """Tells central, and forgets the replicas of nodes that are gone."""
        while True:
            seconds = await self._tell()
            with anyio.move_on_after(seconds):
                await self._changed.wait()
            self._changed = anyio.Event()
            self._forget_gone()

    def _forget_gone(self) -> None:
        nodes = self._site.nodes()
        gone = [
            node_id for node_id in self._announced if node_id not in nodes or nodes[node_id].liveness is Liveness.LOST
        ]
        for node_id in gone:
            if self._announced.pop(node_id).handoffs:
                log.info("replicas of a lost node withdrawn", node=node_id)
        if gone:
            self._settle()

    def _settle(self) -> None:
        pools = self._site.inference.pools
        found, problems = assigned(
            {node_id: (message.network, message.handoffs) for node_id, message in self._announced.items()},
            network=self._network,
        )
        unreadable = (
            f"{node_id}: {why}" for node_id, message in self._announced.items() for why in message.unreadable
        )
        problems = (*problems, *unreadable)[:PROBLEMS_MAX]
        if problems != self._problems:
            self._problems = problems
            for problem in problems:
                log.warning("replica not usable", why=problem)
        fresh = {each.handoff.key: each for each in found}
        if fresh == self._bound:
            return
        if pools is not None:
            for pool_id, replica_id in sorted(self._bound.keys() - fresh.keys()):
                pools.unbind(pool_id, replica_id)
            for each in fresh.values():
                pools.bind(each.handoff, self._opens(each))
        self._bound = fresh
        # Central may be elsewhere, and then reaches engines only through the tunnel.
        reachable = (each for each in fresh.values() if not each.handoff.preparation)
        self._site.endpoints.offer(TOPIC, [_seen_from_central(each) for each in reachable])
        self._on_settled(list(fresh.values()))
        self._changed.set()

    def _opens(self, replica: Reached) -> OpenStream | None:
        if replica.is_direct:
            return None
        return ThroughNode(self._site.node_tunnels, NodeId(replica.owner), replica.endpoint)

    async def _tell(self) -> float:
        """Returns when to tell again."""
        central = self._site.central
        if central is None:
            return OLD_CENTRAL_SECONDS
        if not self.is_complete():
            return LOOK_SECONDS
        try:
            await central.call(self._site.site, TOPIC, json.dumps(self._list()).encode())
        except PeerIncompatible:
            return OLD_CENTRAL_SECONDS
        except HomeportError as error:
            log.debug("replicas not sent to central", error=str(error))
            return RETRY_SECONDS
        return TELL_SECONDS

    async def asked(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """By a central that does not know of it."""
        if not self.is_complete():
            raise PeerUnavailable("The site has just started and does not know all its engines yet.")
        return self._list()

    def _list(self) -> dict[str, Any]:
        here = [to_data(each.handoff) for each in self._bound.values() if each.is_direct]
        # In a list of their own: a central that knows no such replicas must not connect to its own loopback.
        behind_nodes = [
            {**to_data(each.handoff), "node_id": each.owner} for each in self._bound.values() if not each.is_direct
        ]
        return {"network": self._network, "replicas": here, "behind_nodes": behind_nodes}


def _seen_from_central(replica: Reached) -> Endpoint:
    return replica.endpoint if replica.is_direct else replace(replica.endpoint, node_id=NodeId(replica.owner))
