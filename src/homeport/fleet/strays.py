"""What nodes still run though nobody wants it there: ordered away, and again when that failed."""

from collections.abc import Iterable
from datetime import datetime

from homeport.core.model.order import Held, Order, Result
from homeport.core.reconcile.holds import hold_on
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS, Key
from homeport.fleet.memory import Memory
from homeport.ports import NodeNews
from homeport.vocabulary import DeploymentId, Generation, Liveness, NodeId, OrderKind


def removals(node_id: NodeId, held: Iterable[Held], memory: Memory, moment: float) -> list[Order]:
    """For each stray among what a node holds. What the site wants may still be placed there, so it is only noted:
    a node that was removed and comes back must not run a second one of what has moved on."""
    if memory.applied is None:
        return []
    strays = [
        key
        for item in held
        if not (item.kind is OrderKind.REMOVE and item.done)
        and _is_stray(key := (item.deployment_id, node_id), memory)
    ]
    memory.strays.update({key: moment for key in strays if key[0] in memory.wanted})
    return [_removal(key[0], memory) for key in strays if key[0] not in memory.wanted]


def note(node_id: NodeId, item: NodeNews, memory: Memory, moment: float) -> None:
    """A removal that failed is remembered; `moment` is on the monotonic clock."""
    key = item.deployment_id, node_id
    if isinstance(item, Result) and item.kind is OrderKind.REMOVE and not item.succeeded and _is_stray(key, memory):
        memory.strays[key] = moment


def due(memory: Memory, moment: float, now: datetime) -> list[tuple[NodeId, Order]]:
    """What was noted a while ago and is still a stray; a node that is away is told when it comes back."""
    ready = [key for key, noted in memory.strays.items() if moment - noted >= REMOVAL_RETRY_SECONDS]
    waits = {key for key in ready if _is_stray(key, memory) and _must_wait(key, memory, now)}
    for key in ready:
        if key not in waits:
            del memory.strays[key]
    return [
        (node_id, _removal(what, memory))
        for what, node_id in ready
        if (what, node_id) not in waits and _is_stray((what, node_id), memory)
    ]


def _is_stray(key: Key, memory: Memory) -> bool:
    return key not in memory.instances and key[0] not in memory.kept


def _must_wait(key: Key, memory: Memory, now: datetime) -> bool:
    """Whether the plan cannot say yet that something which is wanted is not wanted on this node."""
    node = memory.nodes.get(key[1])
    if key[0] not in memory.wanted or node is None:
        return False
    is_known = bool(node.info.capabilities.engine) and node.liveness is not Liveness.LOST
    return not is_known or hold_on(memory.holds, key[0], now) is not None


def _removal(deployment_id: DeploymentId, memory: Memory) -> Order:
    memory.generation = Generation(memory.generation + 1)
    return Order(memory.generation, deployment_id, OrderKind.REMOVE, None, reason="nobody wants it here")
