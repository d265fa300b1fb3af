"""Column types that behave the same in SQLite and PostgreSQL, and JSON as text.

Text sorts by code point in both databases. Times are UTC, with their time zone, on the way in and out. JSON is stored
as plain text that we write and parse, so that both databases treat it alike.

SQLite stores any value in any column. A value that is not of its column's type is handed on as it is: `rows` finds it
and leaves out its row, while an exception here would cost all rows of the query.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import TEXT, BigInteger, Boolean, DateTime, Dialect, Integer, LargeBinary, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

from homeport.errors import InvalidInput, InvariantViolated

Number = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. SQLite calls that INTEGER, and only under this name uses it as the row id."""


POSITION_MAX = 2**62
"""Numbers are below it, so that there is always a next one."""


class Bytes(TypeDecorator[bytes]):
    impl = LargeBinary
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        return None  # drivers return bytes; SQLAlchemy's own conversion turns the number 5 into five bytes


class Flag(TypeDecorator[bool]):
    impl = Boolean
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        return lambda value: bool(value) if value in {0, 1} else value


class Words(TypeDecorator[str]):
    """Text. Characters that PostgreSQL cannot store (NUL, a lone surrogate) become U+FFFD, so that the output of any
    container can be recorded."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return TEXT(collation="C") if dialect.name == "postgresql" else TEXT()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else storable(value)


class MomentColumn(TypeDecorator[datetime]):
    """A point in time. PostgreSQL stores the zone; SQLite has no such type, so it stores UTC."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(DateTime(timezone=dialect.name == "postgresql"))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return utc(value) if dialect.name == "postgresql" else utc(value).replace(tzinfo=None)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        return _from_postgresql if dialect.name == "postgresql" else _from_sqlite


def _from_postgresql(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)


def _from_sqlite(value: Any) -> Any:
    """As SQLAlchemy writes it: `2026-03-01 12:30:15.123456`."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvariantViolated(f"the time {moment} has no time zone")
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def bound(kind: TypeEngine[Any], values: Sequence[Any], dialect: Dialect) -> Sequence[Any]:
    """Values of one column as the driver takes them: what SQLAlchemy would make of each, several calls for each."""
    if isinstance(kind, Words):
        together = "".join(filter(None, values))
        if together.isascii() and "\0" not in together:
            return values
    if isinstance(kind, MomentColumn) and dialect.name == "sqlite":
        return [value and utc(value).isoformat(" ", "microseconds").removesuffix("+00:00") for value in values]
    if isinstance(kind, MomentColumn):
        return [value and utc(value) for value in values]
    convert = kind.dialect_impl(dialect).bind_processor(dialect)
    return values if convert is None else [convert(value) for value in values]


def storable(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = text.encode(errors="surrogatepass").decode(errors="replace")
    return text


def to_json(value: Any) -> str:
    """Raises InvalidInput for what JSON cannot represent."""
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"This cannot be stored as JSON: {error}") from error


def from_json(text: str) -> Any:
    """What `to_json` can write. Raises ValueError for other text."""
    return _decode(text)


def object_from_json(text: str) -> dict[str, Any]:
    value = from_json(text)
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    return value


def labels_from_json(text: str) -> dict[str, str]:
    value = object_from_json(text)
    if not all(isinstance(each, str) for each in value.values()):
        raise ValueError("a value of it is not a string")
    return value


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_number(text)


def _refuse_number(text: str) -> Any:
    raise ValueError(f"it has the number {text[:20]}")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode
"""Made once: `json.dumps` would make an encoder for each value."""
_decode: Final = json.JSONDecoder(parse_constant=_refuse_number, parse_float=_finite).decode
