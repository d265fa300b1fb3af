"""The nodes of a site and their liveness.

Everything here but `heartbeat` runs under the conductor's lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from homeport.core.events import node_events, node_left_event
from homeport.core.lifecycle.node import liveness
from homeport.core.model.node import Node, NodeInfo, Tunable
from homeport.core.model.report import NodeChanged, NodeGone
from homeport.core.node.tuning import liveness_timeouts
from homeport.errors import NotFound
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import SiteState
from homeport.log import get_log
from homeport.ports import Clock, Store, Transaction
from homeport.vocabulary import Liveness, NodeId

log = get_log(__name__)

SAVE_SECONDS: Final = 30.0
"""How often heartbeat times are stored: a crash loses no more than that."""
CLOCK_SET: Final = timedelta(seconds=1)
"""A larger difference between the time of day and the time that passed means that the clock was set."""


class NodeRoster:
    def __init__(
        self,
        memory: SiteState,
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
        self._save_at = clock.monotonic()
        self._unsaved: set[NodeId] = set()
        """Nodes with other changes that are stored together with the heartbeat times."""

    async def register(self, infos: Sequence[NodeInfo]) -> bool:
        """Registers nodes; the same id again replaces the earlier registration. Returns whether planning is needed:
        free disk space changes by the minute, and is only stored with the heartbeat times."""
        now = self._clock.now()
        changed: list[Node] = []
        for info in infos:
            before = self._memory.nodes.get(info.id)
            registered_at = now if before is None else before.registered_at
            drain = None if before is None else before.drain
            problem = None if before is None else before.problem
            tunable = Tunable() if before is None else before.tunable
            node = Node(info, self._memory.site, Liveness.LIVE, now, registered_at, drain, problem, tunable)
            if before is None or _without_timestamps(replace(before, last_seen=now)) != _without_timestamps(node):
                changed.append(node)
            elif before.info != info:
                self._memory.nodes[info.id] = replace(before, info=info)
                self._unsaved.add(info.id)
        await self._put(changed, now)
        for info in infos:
            self._note(info.id)
        return bool(changed)

    def heartbeat(self, node_id: NodeId) -> None:
        """Raises NotFound for a node that must register first."""
        if node_id not in self._memory.nodes:
            raise NotFound(f"node {node_id} is not registered here", hint="Register it first.")
        self._note(node_id)

    async def distrust(self, node_id: NodeId) -> None:
        """It is not live until it is accepted again and sends a heartbeat."""
        node = self._memory.nodes.get(node_id)
        if node is None:
            return
        self._memory.distrusted.add(node_id)
        if node.liveness is Liveness.LIVE:
            stale = replace(node, liveness=Liveness.STALE, last_seen=self._last_seen(node_id))
            await self._put([stale], self._clock.now())

    async def set_problem(self, node_id: NodeId, problem: str | None) -> None:
        node = self._memory.nodes.get(node_id)
        if node is not None and node.problem != problem:
            await self._put([replace(node, problem=problem)], self._clock.now())

    async def forget(self, node_id: NodeId) -> None:
        memory, now = self._memory, self._clock.now()
        if node_id not in memory.nodes:
            raise NotFound(f"there is no node {node_id}", hint="List them: homeport nodes list")

        async def work(tx: Transaction) -> None:
            await tx.remove_node(memory.site, node_id)
            await tx.append_events([node_left_event(memory.site, node_id, now)])
            await self._queue.put(tx, [NodeGone(node_id)])

        await self._queue.commit(work)
        memory.nodes.pop(node_id)
        memory.last_heartbeat.pop(node_id, None)
        memory.distrusted.discard(node_id)
        log.info("node unregistered", node=node_id)

    async def look(self) -> bool:
        """Updates the liveness of each node, and periodically stores the heartbeat times. Returns whether any node's
        liveness changed."""
        memory, now, moment = self._memory, self._clock.now(), self._clock.monotonic()
        changed = []
        for node_id, last_heartbeat in memory.last_heartbeat.items():
            node = memory.nodes[node_id]
            stale, lost = liveness_timeouts(
                node.tunable, stale_seconds=self._stale_seconds, lost_seconds=self._lost_seconds
            )
            level = liveness(moment - last_heartbeat, stale_seconds=stale, lost_seconds=lost)
            if level is Liveness.LIVE and node_id in memory.distrusted:
                level = Liveness.STALE
            if level is not node.liveness:
                changed.append(replace(node, liveness=level, last_seen=self._last_seen(node_id)))
            elif level is Liveness.LOST and abs(self._last_seen(node_id) - node.last_seen) > CLOCK_SET:
                # How long it has been lost decides whether its work is placed elsewhere.
                memory.nodes[node_id] = replace(node, last_seen=self._last_seen(node_id))
        await self._put(changed, now)
        if moment >= self._save_at:
            self._save_at = moment + SAVE_SECONDS
            await self._save()
        return bool(changed)

    async def _save(self) -> None:
        """Stores changes of nodes that need no planning, in one write."""
        memory = self._memory
        seen = {key: at for key, at in self.seen().items() if at > memory.nodes[key].last_seen}
        for node_id, at in seen.items():
            memory.nodes[node_id] = replace(memory.nodes[node_id], last_seen=at)
        unsaved, self._unsaved = [memory.nodes[key] for key in sorted(self._unsaved) if key in memory.nodes], set()
        if not seen and not unsaved:
            return

        async def work(tx: Transaction) -> None:
            await tx.touch_nodes(memory.site, seen)
            for node in unsaved:
                await tx.put_node(node)
            await self._queue.put(tx, [NodeChanged(node) for node in unsaved])

        await self._queue.commit(work)

    def seen(self) -> Mapping[NodeId, datetime]:
        return {node_id: self._last_seen(node_id) for node_id in self._memory.last_heartbeat}

    def _note(self, node_id: NodeId) -> None:
        self._memory.last_heartbeat[node_id] = self._clock.monotonic()
        self._memory.distrusted.discard(node_id)

    def _last_seen(self, node_id: NodeId) -> datetime:
        silent = self._clock.monotonic() - self._memory.last_heartbeat[node_id]
        return datetime.fromtimestamp(self._clock.now().timestamp() - silent, self._clock.now().tzinfo)

    async def _put(self, nodes: Sequence[Node], now: datetime) -> None:
        """All in one transaction, so that a thousand nodes that become silent together are one write."""
        if not nodes:
            return
        news = [event for node in nodes for event in node_events(self._memory.nodes.get(node.id), node, now)]

        async def work(tx: Transaction) -> None:
            for node in nodes:
                await tx.put_node(node)
            await tx.append_events(news)
            await self._queue.put(tx, [NodeChanged(node) for node in nodes])

        await self._queue.commit(work)
        reported = {event.node_id for event in news}
        for node in nodes:
            self._memory.nodes[node.id] = node
            if node.id in reported:
                engine = node.info.capabilities.engine
                log.info("node changed", node=node.id, liveness=node.liveness.value, engine=engine)


def _without_timestamps(node: Node) -> Node:
    """Without what changes by the minute."""
    steady = replace(node.info.capabilities, disk_free_bytes=0)
    return replace(node, info=replace(node.info, capabilities=steady))
