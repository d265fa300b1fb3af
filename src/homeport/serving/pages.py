"""The pagination of every list: `limit`, `cursor`, `sort` and `fields`; the items, and `next` where there are
more.

A cursor is the key of the last item shown, with the list and the order it belongs to. It is opaque to clients and
contains nothing secret: it is validated like any other input.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from homeport.core.values.numbers import fits_64_bits
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.ports import Cut, Item, Key, Listing, Page

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
CURSOR_LENGTH_MAX: Final = 4_000
FIELDS_LENGTH_MAX: Final = 1_000

_Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many items a page has at most.")]
_Cursor = Annotated[
    str | None,
    Query(max_length=CURSOR_LENGTH_MAX, description="The `next` of the page before, to get the one that follows."),
]


class BadCursor(InvalidInput):
    """The cursor is not one of this list."""

    code = "bad-cursor"

    def __init__(self, message: str) -> None:
        hint = "Give the `next` of the page before as it is, or none for the first page."
        super().__init__(problems=[Problem("cursor", message)], hint=hint)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested part of a list, and the fields of its items."""

    name: str
    cut: Cut
    fields: frozenset[str] | None = None
    """All of them when None."""

    def shows(self, *fields: str) -> bool:
        """Whether any of these is requested: fields that are not shown need not be computed."""
        return self.fields is None or not self.fields.isdisjoint(fields)

    def sorted_by(self, order: str, after: Key | None) -> "PageRequest":
        """In this order, and after `after` unless the cursor is further."""
        if self.cut.order not in (None, order):
            raise BadCursor("belongs to the same list in another order.")
        return replace(self, cut=Cut(self.cut.limit, self.cut.after or after, order))

    def part_of(self, items: Sequence[Item], key: Callable[[Item], Key]) -> Page[Item]:
        """For a list that is not in the database."""
        after = self.cut.after
        left = sorted((each for each in items if after is None or key(each) > after), key=key)
        shown = left[: self.cut.limit]
        return Page(shown, key(shown[-1]) if len(shown) < len(left) else None)

    def answer(self, key: str, bodies: Sequence[BaseModel], after: Key | None, **around: str) -> Response:
        """The page as JSON: the items under `key`, and where the next page begins."""
        parts = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in around.items()]
        parts += [f"{json.dumps(key)}:{self.array(bodies)}", f'"next":{json.dumps(self.cursor(after))}']
        return Response(f"{{{','.join(parts)}}}", media_type="application/json")

    def array(self, bodies: Sequence[BaseModel]) -> str:
        include = None if self.fields is None else set(self.fields)
        return f"[{','.join(body.model_dump_json(include=include) for body in bodies)}]"

    def cursor(self, after: Key | None) -> str | None:
        return None if after is None else encode_cursor(self.name, self.cut.order or "", after)


def asked(listing: Listing[Any, Any], body: type[BaseModel]) -> Callable[..., PageRequest]:
    """The query parameters of a list whose items are shown as `body`."""
    orders, known = list(listing.orders), list(body.model_fields)
    sort_query = Query(
        json_schema_extra={"enum": orders}, description=f"In which order; `{orders[0]}` when left out."
    )
    fields_query = Query(
        max_length=FIELDS_LENGTH_MAX,
        description=f"Only these fields of each item, with commas between them: {', '.join(known)}.",
        examples=[",".join(known[:2])],
    )

    def paging(
        limit: _Limit = LIMIT_DEFAULT,
        cursor: _Cursor = None,
        sort: Annotated[str | None, sort_query] = None,
        fields: Annotated[str | None, fields_query] = None,
    ) -> PageRequest:
        order, after = (sort, None) if cursor is None else decode_cursor(listing, cursor)
        if sort not in (None, *orders):
            message = f'"{sort}" is not an order of {listing.name}; there is {", ".join(orders)}.'
            raise InvalidInput(problems=[Problem("sort", message)])
        if sort not in (None, order):
            raise BadCursor(
                f'belongs to the list in the order "{order}"; leave out `sort`, or start with the first page.'
            )
        chosen = order or (orders[0] if len(orders) == 1 else None)
        return PageRequest(listing.name, Cut(limit, after, chosen), _fields(fields, known, listing.name))

    return paging


def encode_cursor(name: str, order: str, key: Key) -> str:
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in key]
    text = json.dumps([name, order, *parts], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(listing: Listing[Any, Any], cursor: str) -> tuple[str, Key]:
    """Its order and key. Raises BadCursor for a cursor that this list has not issued."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        raise BadCursor("cannot be read.") from error
    if not isinstance(parts, list) or len(parts) < 2 or parts[0] != listing.name:
        raise BadCursor(f"is not one of the list of {listing.name}.")
    order = parts[1] or listing.default_order
    types = listing.orders.get(order) if isinstance(order, str) else None
    if types is None or len(types) != len(parts) - 2:
        raise BadCursor(f"is not one of the list of {listing.name}.")
    return order, tuple(_part(value, kind) for value, kind in zip(parts[2:], types, strict=True))


def _part(value: object, kind: type) -> str | int | datetime:
    if kind is datetime and isinstance(value, str):
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise BadCursor("has a time that cannot be read.") from error
    if kind is str and isinstance(value, str):
        return value
    if kind is int and type(value) is int and fits_64_bits(value):
        return value
    raise BadCursor("does not have the parts that it should have.")


def _fields(text: str | None, known: Sequence[str], name: str) -> frozenset[str] | None:
    if not text:
        return None
    given = [each.strip() for each in text.split(",")]
    unknown = [each for each in given if each not in known]
    if unknown:
        message = f'"{unknown[0]}" is not a field of {name}; there is {", ".join(known)}.'
        raise InvalidInput(problems=[Problem("fields", message)])
    return frozenset(given)
