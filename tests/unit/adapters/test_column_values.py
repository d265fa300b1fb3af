"""What the driver is given without SQLAlchemy is what SQLAlchemy would have given it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from homeport.adapters.store.columns import Bytes, Flag, MomentColumn, Number, Words, bound
from homeport.errors import InvariantViolated

SQLITE: Dialect = sqlite.dialect()
POSTGRESQL: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
INDIA = timezone(timedelta(hours=5, minutes=30))
MOMENTS = [None, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(999, 12, 31, 23, 59, 59, 7, tzinfo=INDIA)]


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRESQL], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Words(), ["plain", None, ""]),
        (Words(), ["plain", "a\0b", None]),
        (Words(), ["Grüße", "\ud800 alone", "plain", None]),
        (Words(), []),
        (MomentColumn(), MOMENTS),
        (Number, [1, None, -(2**63)]),
        (Bytes(), [b"\0\xff", None]),
        (Flag(), [True, False, None]),
    ],
)
def test_a_column_is_bound_as_each_of_its_values_would_be(
    kind: TypeEngine[Any], values: Sequence[Any], dialect: Dialect
) -> None:
    convert: Any = kind.dialect_impl(dialect).bind_processor(dialect) or (lambda value: value)
    # The drivers wrap bytes in a type of their own: what is in it counts.
    assert list(map(_plain, bound(kind, values, dialect))) == [_plain(convert(value)) for value in values]


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvariantViolated, match="no time zone"):
        bound(MomentColumn(), [datetime(2026, 1, 2)], SQLITE)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
