"""Log lines as rows of a database, for both of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from homeport.core.logs.gaps import collapse
from homeport.core.logs.line import LEVELS, RANKS, LogLine, Origin, StoredLine

EXAMINED_MAX: Final = 20_000
"""How many lines one page of a query looks at."""
TRIM_ROWS_MAX: Final = 20_000
ORIGINS_APART_MAX: Final = 20
"""Up to so many origins are looked up one by one by their index; lines of more are found by reading all."""
ORIGINS_KEPT_MIN: Final = 1_000
"""Up to so many, origins without lines are not looked for. Each job is one, and a node names whatever it likes."""
REMOVED: Final = "they were removed to make room before they could be sent on"

Row = Sequence[Any]
"""origin, at_ms, level, text, fields; with the id before them when it is read."""

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


@lru_cache(maxsize=256)
def from_ms(milliseconds: int) -> datetime:
    """Cached, because many lines of a busy container have the same time."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def row_of(origin: int, line: LogLine) -> Row:
    fields = _encode(line.fields) if line.fields else ""
    return origin, to_ms(line.at), RANKS.get(line.level, 1), line.text, fields


class DamagedRow(Exception):
    """What is stored is not what was written."""


def stored_of(row: Row, origins: Mapping[int, Origin]) -> StoredLine:
    """Raises DamagedRow."""
    number, origin_id, at_ms, level, text, fields = row
    try:
        origin = origins[origin_id]
        kept = json.loads(fields) if fields else {}
        return StoredLine(number, origin, LogLine(from_ms(at_ms), origin.source, LEVELS[level], text, kept, number))
    except (LookupError, TypeError, RecursionError, ValueError, OverflowError, OSError) as error:
        raise DamagedRow(f"line {number}: {error!r}") from error


def gap_rows(rows: Iterable[Row], origins: Mapping[int, Origin]) -> list[tuple[int, Row]]:
    """The rows that take the place of these, each with the id of the last that it replaces."""
    stored = (stored_of(row, origins) for row in rows)
    # The site is part of the key, so that two sites with a node of one name keep their own gaps.
    lines = ((f"{each.origin.site}/{each.origin.node}", each.line) for each in stored)
    ids = {(f"{origin.site}/{origin.node}", origin.source): key for key, origin in origins.items()}
    return [(line.sequence, row_of(ids[place, line.source], line)) for place, line in collapse(lines, REMOVED)]
