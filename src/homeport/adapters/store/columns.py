"""Column types that behave the same in SQLite and PostgreSQL, and JSON as text.

Text sorts by code point in both databases. Times are UTC, with their time zone, on the way in and out. JSON is stored
as plain text that we write and parse, so that both databases treat it alike.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import TEXT, BigInteger, DateTime, Dialect, Integer, LargeBinary, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

from homeport.errors import InvalidInput, InvariantViolated

Number = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. SQLite calls that INTEGER, and only under this name uses it as the row id."""
Bytes = LargeBinary()


class Words(TypeDecorator[str]):
    """Text. Characters that PostgreSQL cannot store (NUL, a lone surrogate) become U+FFFD, so that the output of any
    container can be recorded."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return TEXT(collation="C") if dialect.name == "postgresql" else TEXT()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else storable(value)


class Moment(TypeDecorator[datetime]):
    """A point in time. PostgreSQL stores the zone; SQLite has no such type, so it stores UTC."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(DateTime(timezone=dialect.name == "postgresql"))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return utc(value) if dialect.name == "postgresql" else utc(value).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise InvariantViolated(f"the time {moment} has no time zone")
    return moment.astimezone(UTC)


def bound(kind: TypeEngine[Any], values: Sequence[Any], dialect: Dialect) -> Sequence[Any]:
    """Values of one column as the driver takes them: what SQLAlchemy would make of each, several calls for each."""
    if isinstance(kind, Words):
        together = "".join(filter(None, values))
        if together.isascii() and "\0" not in together:
            return values
    if isinstance(kind, Moment) and dialect.name == "sqlite":
        return [value and utc(value).replace(tzinfo=None).isoformat(" ", "microseconds") for value in values]
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
    return json.loads(text)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain).encode
"""Made once: `json.dumps` would make an encoder for each value."""
