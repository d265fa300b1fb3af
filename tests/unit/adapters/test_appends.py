"""Rows that are appended together: one that no database would take is refused before any is kept."""

import pytest

from homeport.adapters.store import schema
from homeport.adapters.store.commit.appends import NUMBER_MAX, Appends
from homeport.errors import InvalidInput

COUNTS = {schema.events: 0, schema.history: 7, schema.outbox: 0}


@pytest.mark.parametrize("number", [NUMBER_MAX + 1, -NUMBER_MAX - 1])
def test_a_number_beyond_64_bits_is_refused_and_leaves_nothing(number: int) -> None:
    appends = Appends(COUNTS)
    with pytest.raises(InvalidInput, match="incarnation does not fit into 64 bits"):
        appends.add(schema.history, [{"incarnation": 1}, {"incarnation": number}])
    assert appends.counts == COUNTS
    assert appends.is_written(schema.history)


def test_rows_are_numbered_after_the_last_one() -> None:
    appends, rows = Appends(COUNTS), [{"incarnation": 1}, {"incarnation": NUMBER_MAX}]
    appends.add(schema.history, rows)
    assert [row["id"] for row in rows] == [8, 9]
