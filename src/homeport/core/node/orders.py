"""Which orders a node accepts. The generation decides, for at a site it only grows. A site whose database was put
back from an older copy gives a number out a second time; that is recognised by what it orders."""

from enum import StrEnum

from homeport.core.model.order import Order
from homeport.core.node.entry import JournalEntry
from homeport.vocabulary import OrderKind


class OrderVerdict(StrEnum):
    ACCEPT = "accepted"
    REPEAT = "repeated"
    """Already done: the result is sent again and nothing is changed."""
    BUSY = "busy"
    """Being carried out: its result will be sent."""
    OLDER = "older"
    """Superseded by a newer one: refused."""


def judge(order: Order, entry: JournalEntry | None) -> OrderVerdict:
    if entry is None or order.generation > entry.order.generation:
        return OrderVerdict.ACCEPT
    if order.generation < entry.order.generation:
        return OrderVerdict.OLDER
    if _what(order) != _what(entry.order):
        return OrderVerdict.ACCEPT
    return OrderVerdict.BUSY if entry.result is None else OrderVerdict.REPEAT


def _what(order: Order) -> object:
    """What an order asks for: a release, and the versions of the secrets that it gets."""
    if order.kind is OrderKind.REMOVE or order.release is None:
        return order.kind
    return order.kind, order.release.revision, [dict(part.secrets) for part in order.release.components]
