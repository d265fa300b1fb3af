"""The nodes of a site: who is there, and how long each has been silent.

Everything here but `hear` belongs to one decision of the conductor, made in its turn.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

import structlog

from homeport.core.lifecycle.node import liveness
from homeport.core.model.event import NewEvent
from homeport.core.model.node import Node, NodeInfo
from homeport.core.model.report import NodeChanged, NodeGone
from homeport.errors import NotFound
from homeport.fleet.memory import Memory
from homeport.fleet.queueing import ReportQueue
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import EventKind, Liveness, NodeId

log = structlog.get_logger(__name__)


class Roster:
    def __init__(
        self,
        memory: Memory,
        store: Store,
        clock: Clock,
        queue: ReportQueue,
        *,
        stale_seconds: float,
        lost_seconds: float,
    ) -> None:
        self._memory = memory
        self._store = store
        self._clock = clock
        self._queue = queue
        self._stale_seconds = stale_seconds
        self._lost_seconds = lost_seconds

    async def register(self, info: NodeInfo) -> None:
        """The same id again replaces what was known."""
        now = self._clock.now()
        before = self._memory.nodes.get(info.id)
        registered_at = now if before is None else before.registered_at
        drain = None if before is None else before.drain
        node = Node(info, self._memory.site, Liveness.LIVE, now, registered_at, drain)
        if before is None or replace(before, last_seen=now) != node:
            await self._put(node, now)
        self._note(info.id)

    def hear(self, node_id: NodeId) -> None:
        """A beat. Raises NotFound for a node that must register first."""
        if node_id not in self._memory.nodes:
            raise NotFound(f"node {node_id} is not registered here", hint="Register it first.")
        self._note(node_id)

    async def disbelieve(self, node_id: NodeId) -> None:
        """It is not live from this moment on, until it is let in and heard again."""
        node = self._memory.nodes.get(node_id)
        if node is None:
            return
        self._memory.disbelieved.add(node_id)
        if node.liveness is Liveness.LIVE:
            stale = replace(node, liveness=Liveness.STALE, last_seen=self._last_seen(node_id))
            await self._put(stale, self._clock.now())

    async def forget(self, node_id: NodeId) -> None:
        memory, now = self._memory, self._clock.now()
        node = memory.nodes.get(node_id)
        if node is None:
            raise NotFound(f"there is no node {node_id}", hint="List them: homeport nodes list")

        async def work(tx: Transaction) -> None:
            await tx.remove_node(memory.site, node_id)
            await tx.append_events(
                [NewEvent(EventKind.NODE_LEFT, now, f"{node_id} left", site=node.site, node_id=node_id)]
            )
            await self._queue.put(tx, [NodeGone(node_id)])

        await self._queue.commit(work)
        memory.nodes.pop(node_id)
        memory.heard.pop(node_id, None)
        memory.disbelieved.discard(node_id)
        log.info("node left", node=node_id)

    async def look(self) -> None:
        """Looks how long each node has been silent, and keeps the times of hearing in the store."""
        memory, now, moment = self._memory, self._clock.now(), self._clock.monotonic()
        for node_id, heard in list(memory.heard.items()):
            node = memory.nodes[node_id]
            level = liveness(moment - heard, stale_seconds=self._stale_seconds, lost_seconds=self._lost_seconds)
            if level is Liveness.LIVE and node_id in memory.disbelieved:
                level = Liveness.STALE
            if level is not node.liveness:
                await self._put(replace(node, liveness=level, last_seen=self._last_seen(node_id)), now)
        seen = self.seen()
        await self._store.write(lambda tx: tx.touch_nodes(memory.site, seen))
        for node_id, at in seen.items():
            memory.nodes[node_id] = replace(memory.nodes[node_id], last_seen=at)

    def seen(self) -> Mapping[NodeId, datetime]:
        return {node_id: self._last_seen(node_id) for node_id in self._memory.heard}

    def _note(self, node_id: NodeId) -> None:
        self._memory.heard[node_id] = self._clock.monotonic()
        self._memory.disbelieved.discard(node_id)

    def _last_seen(self, node_id: NodeId) -> datetime:
        silent = self._clock.monotonic() - self._memory.heard[node_id]
        return datetime.fromtimestamp(self._clock.now().timestamp() - silent, self._clock.now().tzinfo)

    async def _put(self, node: Node, now: datetime) -> None:
        before = self._memory.nodes.get(node.id)
        kind = EventKind.NODE_JOINED if before is None else EventKind.NODE_LIVENESS
        message = f"{node.id} joined" if before is None else f"{node.id} is {node.liveness}"
        event = NewEvent(kind, now, message, site=node.site, node_id=node.id, data={"liveness": node.liveness.value})
        news = [event] if before is None or before.liveness is not node.liveness else []

        async def work(tx: Transaction) -> None:
            await tx.put_node(node)
            await tx.append_events(news)
            await self._queue.put(tx, [NodeChanged(node)])

        await self._queue.commit(work)
        self._memory.nodes[node.id] = node
        if news:
            log.info("node changed", node=node.id, liveness=node.liveness.value, engine=node.info.capabilities.engine)
