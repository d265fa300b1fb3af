"""Which orders a node takes up. The generation alone decides: it only grows at a site."""

from enum import StrEnum

from homeport.core.model.order import Order
from homeport.core.node.entry import Entry


class Verdict(StrEnum):
    ACCEPT = "accepted"
    REPEAT = "repeated"
    """Done already: the answer is sent again and nothing is touched."""
    BUSY = "busy"
    """Being carried out: its result will come."""
    OLDER = "older"
    """Overtaken by a newer one: refused."""


def judge(order: Order, entry: Entry | None) -> Verdict:
    if entry is None or order.generation > entry.order.generation:
        return Verdict.ACCEPT
    if order.generation < entry.order.generation:
        return Verdict.OLDER
    return Verdict.BUSY if entry.result is None else Verdict.REPEAT
