"""What is kept of drained pools, and what is left out."""

import json

import pytest

from homeport.inference.pools.drains import DRAINS_MAX, newest, parse_drains


@pytest.mark.parametrize("text", ["", None, "{}", "[]", "7", "{", '{"a": "soon"}', "[" * 100_000])
def test_what_cannot_be_read_drains_nothing(text: str | None) -> None:
    assert parse_drains(text) == {}


def test_one_bad_drain_harms_itself_alone() -> None:
    assert parse_drains('{"a": 5, "b": null}') == {"a": 5}


def test_the_oldest_are_forgotten_where_there_are_too_many() -> None:
    kept = newest({f"p{number}": -number for number in range(DRAINS_MAX + 2)})
    assert len(kept) == DRAINS_MAX
    assert kept.keys().isdisjoint({f"p{DRAINS_MAX}", f"p{DRAINS_MAX + 1}"})
    assert parse_drains(json.dumps(kept)) == kept
