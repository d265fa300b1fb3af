"""Orphans: what nodes still run though it is not wanted there. Removals are ordered, and retried when they fail."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from homeport.core.model.instance import Instance
from homeport.core.model.order import Held, Order, Progress, Result
from homeport.core.reconcile.holds import hold_on
from homeport.core.reconcile.instances import Key
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS
from homeport.fleet.site.nodes.takeover import Older
from homeport.fleet.site.state import SiteState
from homeport.ports import Owned, Store
from homeport.vocabulary import Commit, DeploymentId, Generation, Liveness, NodeId, OrderKind, State

LOOKED_UP_MAX: Final = 100
"""How many unknown deployments of a node's engine are looked up in Git's history at a time."""
OTHERS_MAX: Final = 10_000


def removals(node_id: NodeId, held: Iterable[Held], memory: SiteState, moment: float) -> list[Order]:
    """For each orphan in a node's journal. What the site wants may still be placed there, and an invalid file may yet
    be removed, so those are only recorded: the node does not report them again before it reconnects."""
    if memory.applied is None:
        return []
    orphans = [
        key
        for item in held
        if not (item.kind is OrderKind.REMOVE and item.done)
        and _is_orphan(key := (item.deployment_id, node_id), memory)
    ]
    maybe = memory.wanted | memory.unreadable | memory.damaged.keys()
    memory.orphans.update({key: moment for key in orphans if key[0] in maybe})
    return [_removal(key[0], memory) for key in orphans if key[0] not in maybe]


def note(node_id: NodeId, item: Progress | Result, memory: SiteState, moment: float) -> None:
    """Records a failed removal; `moment` is on the monotonic clock."""
    key = item.deployment_id, node_id
    if isinstance(item, Result) and item.kind is OrderKind.REMOVE and not item.succeeded and _is_orphan(key, memory):
        memory.orphans[key] = moment


def due(memory: SiteState, moment: float, now: datetime) -> list[tuple[NodeId, Order]]:
    """What was recorded a while ago and is still an orphan; a disconnected node gets the order when it reconnects."""
    ready = [key for key, noted in memory.orphans.items() if moment - noted >= REMOVAL_RETRY_SECONDS]
    waits = {key for key in ready if _is_orphan(key, memory) and _must_wait(key, memory, now)}
    for key in ready:
        if key not in waits:
            del memory.orphans[key]
    return [
        (node_id, _removal(what, memory))
        for what, node_id in ready
        if (what, node_id) not in waits and _is_orphan((what, node_id), memory)
    ]


def _is_orphan(key: Key, memory: SiteState) -> bool:
    return key not in memory.instances


def _must_wait(key: Key, memory: SiteState, now: datetime) -> bool:
    """Whether the plan cannot decide yet that something wanted is not wanted on this node."""
    if key[0] in memory.unreadable or key[0] in memory.damaged:
        return True
    node = memory.nodes.get(key[1])
    if key[0] not in memory.wanted or node is None:
        return False
    is_known = bool(node.info.capabilities.engine) and node.liveness is not Liveness.LOST
    return not is_known or hold_on(memory.holds, key[0], now) is not None


def _removal(deployment_id: DeploymentId, memory: SiteState) -> Order:
    memory.generation = Generation(memory.generation + 1)
    return Order(memory.generation, deployment_id, OrderKind.REMOVE, None, reason="no deployment wants it here")


def orphaned_workloads(
    node_id: NodeId,
    items: Iterable[Owned],
    memory: SiteState,
    known: Collection[DeploymentId],
    *,
    now: datetime,
    had: Collection[DeploymentId] = (),
    placed: Collection[Key] = (),
) -> tuple[Owned, ...]:
    """The workloads found on a node's engine that belong to no node any more, and are to be removed.

    Only of deployments of this site, which `known` names, archived ones too: what another site has on the same engine
    is not ours. Of another node only when that is permanently gone. In doubt it stays. What this site `had` once, and
    does not know, counts for the node itself. What is not wanted here may have been moved to another site, whose node
    runs it on the same engine: of a node that is unknown here only what was `placed` there.
    """
    if memory.applied is None or node_id not in memory.nodes:
        return ()
    return tuple(
        item
        for item in items
        if (item.deployment_id in known or (item.deployment_id in had and item.node_id == node_id))
        and item.deployment_id not in memory.unreadable
        and item.deployment_id not in memory.damaged
        and item.node_id not in memory.lost_nodes - memory.nodes.keys()
        and (
            _is_forgotten(item, memory, now)
            if item.node_id == node_id
            else _has_no_owner(item.node_id, node_id, memory)
        )
        and (not is_strange(item, node_id, memory) or (item.deployment_id, item.node_id) in placed)
    )


def is_strange(item: Owned, node_id: NodeId, memory: SiteState) -> bool:
    """Whether a node that is unknown here has it, of a deployment that is not wanted here."""
    is_known = item.node_id == node_id or item.node_id in memory.nodes
    return not is_known and item.deployment_id not in memory.wanted


def _is_forgotten(item: Owned, memory: SiteState, now: datetime) -> bool:
    """Whether a node that lost its journal has something that no order would remove. What is wanted may be the only
    release that runs, where the site has lost its database too: it stays until it is healthy on another node."""
    key = item.deployment_id, item.node_id
    if key in memory.instances or item.deployment_id not in memory.wanted:
        return key not in memory.instances
    others = memory.instances.of_deployment(item.deployment_id).values()
    return any(_is_healthy(each, memory) for each in others) and not _must_wait(key, memory, now)


def _is_healthy(instance: Instance, memory: SiteState) -> bool:
    """As far as is known now: what a node had installed before it went silent may be gone with it."""
    node = memory.nodes.get(instance.node_id)
    is_live = node is not None and node.liveness is Liveness.LIVE
    return is_live and instance.state is State.INSTALLED and instance.unhealthy is None


def _has_no_owner(owner: NodeId, node_id: NodeId, memory: SiteState) -> bool:
    """A removed node is gone. A lost one is gone if it came back under another name: on the same machine, joined
    after the lost one's last heartbeat. Another node on the same engine that is only switched off joined
    before."""
    lost, now = memory.nodes.get(owner), memory.nodes[node_id]
    if lost is None:
        return True
    is_same_machine = bool(now.info.hostname) and lost.info.hostname == now.info.hostname
    return lost.liveness is Liveness.LOST and is_same_machine and now.registered_at > lost.last_seen


class OwnershipLookup:
    """Looks up whose the workloads are that a node found on its engine."""

    def __init__(self, memory: SiteState, store: Store) -> None:
        self._memory = memory
        self._store = store
        self._others_at: Commit | None = None
        self._others: set[DeploymentId] = set()
        """Deployments on engines of this site's nodes that Git, at that commit, never had in its folder."""

    async def look_up(
        self, node_id: NodeId, found: Sequence[Owned], older: Older
    ) -> tuple[set[DeploymentId], set[DeploymentId], set[Key]]:
        """The deployments of this site; the node's own that were this site's before; and where those were placed that
        a node without its memory may have run."""
        named = {item.deployment_id for item in found}
        async with self._store.read() as reader:
            known = {key for key in named if await reader.deployment(key) is not None}
            unsure = {item.deployment_id for item in found if is_strange(item, node_id, self._memory)} & known
            placed = {(key, entry.node_id) for key in unsure for entry in await reader.history(key)}
        own = {item.deployment_id for item in found if item.node_id == node_id}
        return known, await self._had_before(own - known, older), placed

    async def _had_before(self, deployment_ids: Collection[DeploymentId], older: Older) -> set[DeploymentId]:
        """Those that Git had in this site's folder once: a database that is an older copy may not know them. What is
        another site's, on the same engine, is looked up once for each commit."""
        applied = self._memory.applied
        if applied != self._others_at:
            self._others_at, self._others = applied, set()
        unseen = sorted(set(deployment_ids) - self._others)[:LOOKED_UP_MAX]
        found = {id_ for id_ in unseen if await older(id_)}
        self._others.update(id_ for id_ in unseen if id_ not in found and len(self._others) < OTHERS_MAX)
        return found
