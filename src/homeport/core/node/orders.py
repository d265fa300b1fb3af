"""Which orders a node accepts. The generation alone decides: at a site it only grows."""

from enum import StrEnum

from homeport.core.model.order import Order
from homeport.core.node.entry import Entry


class OrderVerdict(StrEnum):
    ACCEPT = "accepted"
    REPEAT = "repeated"
    """Already done: the result is sent again and nothing is changed."""
    BUSY = "busy"
    """Being carried out: its result will be sent."""
    OLDER = "older"
    """Superseded by a newer one: refused."""


def judge(order: Order, entry: Entry | None) -> OrderVerdict:
    if entry is None or order.generation > entry.order.generation:
        return OrderVerdict.ACCEPT
    if order.generation < entry.order.generation:
        return OrderVerdict.OLDER
    return OrderVerdict.BUSY if entry.result is None else OrderVerdict.REPEAT
