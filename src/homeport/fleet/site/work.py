"""Kinds of work other than deployments at a site: reports of nodes go to the handler registered for the kind; a kind
without a handler is refused by name, and affects nothing else."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from homeport.core.model.order import DEPLOYMENT, Held, Progress, Result
from homeport.ports import NodeNews, Unreadable
from homeport.vocabulary import NodeId


class SiteWork(Protocol):
    """One kind of work at a site. Its orders use the same streams, with their own generations."""

    async def connected(self, node_id: NodeId, held: Sequence[Held]) -> None:
        """A node has opened its stream, and reports its journal of this kind."""

    async def take(self, news: Sequence[tuple[NodeId, Progress | Result]]) -> None:
        """Makes reports of nodes durable. Returns when they are, so that nodes may delete them."""


Refuse = Callable[[NodeId, str], Awaitable[None]]
"""Records that a message of a node was refused, and why."""


async def take_others(
    news: Sequence[tuple[NodeId, NodeNews]], works: Mapping[str, SiteWork], refuse: Refuse
) -> list[tuple[NodeId, NodeNews]]:
    """Passes on what is not about deployments; returns the rest."""
    own: list[tuple[NodeId, NodeNews]] = []
    others: dict[str, list[tuple[NodeId, Progress | Result]]] = {}
    for node_id, item in news:
        if isinstance(item, Unreadable) or item.work == DEPLOYMENT:
            own.append((node_id, item))
        elif item.work in works:
            others.setdefault(item.work, []).append((node_id, item))
        else:
            await refuse(node_id, f'it is about work of the kind "{item.work}", which this site does not know')
    for kind, of_kind in others.items():
        await works[kind].take(of_kind)
    return own


async def connect_others(node_id: NodeId, held: Sequence[Held], works: Mapping[str, SiteWork]) -> None:
    for kind, work in works.items():
        await work.connected(node_id, [item for item in held if item.work == kind])
