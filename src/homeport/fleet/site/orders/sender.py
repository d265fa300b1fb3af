"""Sends orders to nodes, with the values of secrets filled in at the last moment: they are never stored or shown."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from homeport.core.model.instance import Instance
from homeport.core.model.order import Order
from homeport.core.reconcile.orders import current_order
from homeport.core.reconcile.plan import Move
from homeport.core.secrets import SecretValue, filled, needed
from homeport.fleet.site.state import SiteState
from homeport.fleet.site.traces import SiteTraces
from homeport.log import get_log
from homeport.vocabulary import NodeId

log = get_log(__name__)

SendOrder = Callable[[NodeId, Order], None]
"""Hands an order to a node's stream if there is one; never blocks."""
Reveal = Callable[[Collection[str]], Awaitable[Mapping[str, SecretValue]]]
"""The values of these secrets, as far as this site has them."""


async def no_secrets(_names: Collection[str]) -> Mapping[str, SecretValue]:
    return {}


class OrderSender:
    def __init__(self, memory: SiteState, send: SendOrder, reveal: Reveal, traces: SiteTraces) -> None:
        self._memory = memory
        self._reveal = reveal
        self._traces = traces
        self.send_plain = send
        """Sends an order that has no release, and so no secrets."""

    async def send(self, node_id: NodeId, order: Order) -> list[str]:
        """Returns the names of missing secrets: then nothing was sent."""
        order = self._traces.marked(node_id, order)
        names = frozenset() if order.release is None else needed(order.release)
        if not names or order.release is None:
            self.send_plain(node_id, order)
            return []
        values = await self._reveal(names)
        lacking = sorted(names - values.keys())
        if lacking:
            log.warning("order delayed, secret missing", deployment=order.deployment_id, lacks=lacking)
        else:
            self.send_plain(node_id, replace(order, release=filled(order.release, values)))
        return lacking

    async def send_for(self, move: Move) -> None:
        """The order that a move leads to, if any."""
        instance = self._memory.instances.get((move.deployment_id, move.node_id))
        if move.order is None or instance is None:
            return
        order = self.current(instance)
        if order is not None:
            await self.send(move.node_id, order)

    def current(self, instance: Instance) -> Order | None:
        """The order that this instance's node should have."""
        spent = self._memory.order_timers.spent.get(instance.key, 0.0)
        data = instance.deployment_id in self._memory.data_goes
        return current_order(instance, self._memory.wanted_of(instance), spent_seconds=spent, remove_data=data)
