"""Cursors come back as they were given, and nothing else is taken for one."""

import base64
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.errors import InvalidInput
from homeport.ports import AUDIT, DEPLOYMENTS, NODES, Cut, Listing
from homeport.serving.bodies.fleet import NodeBody
from homeport.serving.pages import BadCursor, PageRequest, asked, decode_cursor, encode_cursor

MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9))]))
EVERYTHING: Listing[object, object] = Listing("all", {"usual": (str, int, datetime), "other": (str,)})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["all", "usual", "other"]),
    lambda inner: st.lists(inner, max_size=5),
)


@given(st.text(), st.integers(-(2**63), 2**63 - 1), MOMENTS.filter(lambda at: 2 < at.year < 9998))
def test_a_cursor_comes_back_as_it_was_given(text: str, number: int, at: datetime) -> None:
    cursor = encode_cursor("all", "usual", (text, number, at))
    assert decode_cursor(EVERYTHING, cursor) == ("usual", (text, number, at))
    assert cursor.isascii() and not set(cursor) & set("+/=&?#")


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_what_was_never_given_out_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor, match="cursor"):
        decode_cursor(EVERYTHING, cursor)


@given(JSON)
def test_values_of_other_kinds_are_refused_and_never_reach_the_store(value: object) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    try:
        order, key = decode_cursor(EVERYTHING, cursor)
    except BadCursor:
        return
    assert [type(part) for part in key] == list(EVERYTHING.orders[order])


@pytest.mark.parametrize(
    "parts",
    [
        ["all", "usual", "a", True, "2026-01-01T00:00:00+00:00"],
        ["all", "usual", "a", 2**63, "2026-01-01T00:00:00+00:00"],
        ["all", "usual", "a", 1, "yesterday"],
        ["all", "usual", "a", 1, "9999-12-31T23:59:59-14:00"],
        ["all", "usual", "a"],
        ["all", "unknown", "a"],
        ["nodes", "site", "a", "b"],
        ["all", ["usual"], "a"],
    ],
)
def test_a_cursor_of_another_list_order_or_type_is_refused(parts: list[object]) -> None:
    with pytest.raises(BadCursor):
        decode_cursor(EVERYTHING, base64.urlsafe_b64encode(json.dumps(parts).encode()).decode())


def test_a_cursor_that_is_nested_beyond_measure_is_refused() -> None:
    with pytest.raises(BadCursor):
        decode_cursor(EVERYTHING, base64.urlsafe_b64encode(b"[" * 2_900).decode())


def test_the_order_of_a_list_goes_on_with_its_cursor() -> None:
    paging = asked(NODES, NodeBody)
    cursor = encode_cursor("nodes", "seen", (datetime(2026, 1, 1, tzinfo=UTC), "home", "node-1"))
    assert paging(cursor=cursor).cut.order == "seen"
    with pytest.raises(BadCursor, match="seen"):
        paging(cursor=cursor, sort="site")


def test_an_unknown_field_or_order_is_named_with_those_that_there_are() -> None:
    paging = asked(NODES, NodeBody)
    assert paging(fields="id, site").fields == frozenset({"id", "site"})
    with pytest.raises(InvalidInput, match=r'"colour" is not a field of nodes; there is id, hostname, site'):
        paging(fields="id,colour")
    with pytest.raises(InvalidInput, match=r'"size" is not an order of nodes; there is site, seen'):
        paging(sort="size")


def test_what_no_database_holds_comes_in_pages_too() -> None:
    first = PageRequest("x", Cut(2)).part_of(["c", "a", "b"], lambda each: (each,))
    assert (first.items, first.next) == (["a", "b"], ("b",))
    assert PageRequest("x", Cut(2, first.next)).part_of(["c", "a", "b"], lambda each: (each,)).items == ["c"]


def test_a_list_with_one_order_has_it_in_its_cursor() -> None:
    assert list(DEPLOYMENTS.orders) == ["site", "updated"]
    assert PageRequest(AUDIT.name, Cut(5)).sorted_by("oldest", (7,)).cut == Cut(5, (7,), "oldest")
    with pytest.raises(BadCursor):
        PageRequest(AUDIT.name, Cut(5, (3,), "newest")).sorted_by("oldest", (7,))
