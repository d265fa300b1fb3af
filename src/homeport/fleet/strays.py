"""What nodes still run though nobody knows or wants it: ordered away, and again when that failed."""

from collections.abc import Iterable

from homeport.core.model.order import Held, Order, Result
from homeport.core.reconcile.plan import REMOVAL_RETRY_SECONDS, Key
from homeport.fleet.memory import Memory
from homeport.ports import NodeNews
from homeport.vocabulary import DeploymentId, Generation, NodeId, OrderKind


def removals(node_id: NodeId, held: Iterable[Held], memory: Memory) -> list[Order]:
    """For each stray among what a node holds."""
    if memory.applied is None:
        return []
    return [
        _removal(item.deployment_id, memory)
        for item in held
        if not (item.kind is OrderKind.REMOVE and item.done) and _is_stray((item.deployment_id, node_id), memory)
    ]


def note(node_id: NodeId, item: NodeNews, memory: Memory, moment: float) -> None:
    """A removal that failed is remembered; `moment` is on the monotonic clock."""
    key = item.deployment_id, node_id
    if isinstance(item, Result) and item.kind is OrderKind.REMOVE and not item.succeeded and _is_stray(key, memory):
        memory.strays[key] = moment


def due(memory: Memory, moment: float) -> list[tuple[NodeId, Order]]:
    """What could not be removed a while ago; a node that is away is told when it comes back."""
    ready = [key for key, failed in memory.strays.items() if moment - failed >= REMOVAL_RETRY_SECONDS]
    for key in ready:
        del memory.strays[key]
    return [(node_id, _removal(what, memory)) for what, node_id in ready if _is_stray((what, node_id), memory)]


def _is_stray(key: Key, memory: Memory) -> bool:
    return key not in memory.instances and key[0] not in memory.wanted and key[0] not in memory.kept


def _removal(deployment_id: DeploymentId, memory: Memory) -> Order:
    memory.generation = Generation(memory.generation + 1)
    return Order(memory.generation, deployment_id, OrderKind.REMOVE, None, reason="nobody wants it here")
