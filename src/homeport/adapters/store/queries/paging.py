"""One query for every page of every list, and one for every count. Each list is described once (`ListSource`).

Pages are found by key: after the last item of the previous page, in the order of the list. Counts are computed by the
database.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Generic

from sqlalchemy import Column, ColumnElement, Row, Table, Text, and_, func, literal, not_, or_, select, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import is_text, keep, records
from homeport.core.values.filters import Parts
from homeport.core.values.selectors import Operator, Requirement, Selector
from homeport.lazy_dataclass import dataclass
from homeport.ports import AtSites, Counts, Cut, Item, Key, Page, Where

Conditions = list[ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class SortOrder:
    columns: tuple[Column[Any], ...]
    """Together unique, and never NULL."""
    descending: frozenset[str] = frozenset()
    """The columns that sort descending."""


@dataclass(frozen=True, slots=True)
class ListSource(Generic[Item, Where]):
    """How a list is stored."""

    table: Table
    record: Callable[[Row[Any]], Item]
    conditions: Callable[[Where], Conditions]
    orders: Mapping[str, SortOrder]
    """By name, the default first."""
    derived: Callable[[Where], Mapping[str, ColumnElement[Any]]] = lambda _: {}
    """Computed columns that it can be counted by."""
    words: Mapping[str, type[StrEnum]] = field(default_factory=dict)
    """The columns with words of ours. Rows that have others cannot be read, so they are not counted by them."""


async def find_page(connection: SqlConnection, source: ListSource[Item, Where], where: Where, cut: Cut) -> Page[Item]:
    order = source.orders[cut.order or next(iter(source.orders))]
    query = select(source.table).where(*source.conditions(where))
    if cut.after is not None:
        query = query.where(_behind(order, cut.after))
    query = query.order_by(*(each.desc() if each.name in order.descending else each.asc() for each in order.columns))
    if cut.limit is None:
        return Page(await records(connection, query, source.record, source.table))
    # One more than requested, to know whether there is a next page.
    rows = await connection.rows(query.limit(cut.limit + 1))
    shown = rows[: cut.limit]
    # The next page begins behind the last row that can be named.
    named = keep(connection, shown, lambda row: row, source.table) if len(rows) > len(shown) else []
    key = tuple(getattr(named[-1], each.name) for each in order.columns) if named else None
    return Page(keep(connection, shown, source.record, source.table), key)


async def find_counts(
    connection: SqlConnection, source: ListSource[Any, Where], where: Where, by: Sequence[str]
) -> Counts:
    derived = source.derived(where)
    columns = [derived[name] if name in derived else source.table.c[name] for name in by]
    query = select(*columns, func.count()).select_from(source.table).where(*source.conditions(where))
    if columns:
        query = query.group_by(*columns)
    return {tuple(row[:-1]): row[-1] for row in await connection.rows(query) if _is_readable(row, by, source)}


def _is_readable(row: Row[Any], by: Sequence[str], source: ListSource[Any, Any]) -> bool:
    """Whether the rows of a group have what their columns can have."""
    for name, value in zip(by, row, strict=False):
        words = source.words.get(name)
        if words is not None and value not in words.__members__.values():
            return False
        if not isinstance(value, str | int | None) or (isinstance(value, str) and not is_text(value)):
            return False
    return True


def at_sites(where: AtSites, site: Column[str]) -> Conditions:
    found: Conditions = [] if where.site is None else [site == where.site]
    return found if where.sites is None else [*found, site.in_(sorted(where.sites))]


def containing(text: str | None, name: ColumnElement[str]) -> Conditions:
    """Names that contain the text, whatever the case of its letters; `%` and `_` are themselves."""
    return [] if text is None else [name.icontains(text, autoescape=True)]


def matching(parts: Parts, words: Mapping[str, Callable[[str], ColumnElement[bool]]]) -> Conditions:
    """The filter language: what each word means for one value. No condition may be NULL, since any may be negated."""
    found = [(part, or_(*(words[part.word](value) for value in part.values))) for part in parts]
    return [not_(condition) if part.is_negated else condition for part, condition in found]


def like(pattern: str, text: ColumnElement[str], *, within: bool = False) -> ColumnElement[bool]:
    """The whole text, or a part of it, with `*` for any characters."""
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    return text.ilike(f"%{escaped}%" if within else escaped, escape="\\")


def labelled_as(value: str, labels: Column[Any], tuned: Column[Any] | None = None) -> ColumnElement[bool]:
    """`region` for any value of that label, `region=north` for one; what an operator set (`tuned`) counts first.
    Never NULL."""
    key, equals, wanted = value.partition("=")
    name = literal(key, type_=Text())
    found: ColumnElement[str] = LabelOf(labels, name)
    if tuned is not None:
        found = func.coalesce(TunedLabelOf(tuned, name), found)
    return and_(found.is_not(None), like(wanted, found)) if equals else found.is_not(None)


def _behind(order: SortOrder, key: Key) -> ColumnElement[bool]:
    values = [literal(value, type_=column.type) for value, column in zip(key, order.columns, strict=True)]
    if not order.descending:
        return tuple_(*order.columns) > tuple_(*values)
    if len(order.descending) == len(order.columns):
        return tuple_(*order.columns) < tuple_(*values)
    steps = []
    for place, (column, value) in enumerate(zip(order.columns, values, strict=True)):
        before = [each == its for each, its in zip(order.columns[:place], values[:place], strict=True)]
        steps.append(and_(*before, column < value if column.name in order.descending else column > value))
    return or_(*steps)


class LabelOf(FunctionElement[str]):
    """The value of a label in a JSON column: NULL where it is absent, also where that is not JSON."""

    inherit_cache = True
    type = Text()


@compiles(LabelOf, "sqlite")
def _label_in_sqlite(element: LabelOf, compiler: SQLCompiler, **options: Any) -> str:
    column, key = (compiler.process(each, **options) for each in element.clauses)
    return f"json_extract(CASE WHEN json_valid({column}) THEN {column} END, '$.\"' || {key} || '\"')"


@compiles(LabelOf, "postgresql")
def _label_in_postgresql(element: LabelOf, compiler: SQLCompiler, **options: Any) -> str:
    column, key = (compiler.process(each, **options) for each in element.clauses)
    return _value_in_postgresql(column, key)


class TunedLabelOf(FunctionElement[str]):
    """The value of a label among `labels` of a JSON column: NULL where it is absent."""

    inherit_cache = True
    type = Text()


@compiles(TunedLabelOf, "sqlite")
def _tuned_in_sqlite(element: TunedLabelOf, compiler: SQLCompiler, **options: Any) -> str:
    column, key = (compiler.process(each, **options) for each in element.clauses)
    return f"json_extract(CASE WHEN json_valid({column}) THEN {column} END, '$.labels.\"' || {key} || '\"')"


@compiles(TunedLabelOf, "postgresql")
def _tuned_in_postgresql(element: TunedLabelOf, compiler: SQLCompiler, **options: Any) -> str:
    column, key = (compiler.process(each, **options) for each in element.clauses)
    return _value_in_postgresql(f"substring({column} from '\"labels\":\\s*{{([^}}]*)')", key)


def _value_in_postgresql(text: str, key: str) -> str:
    """By a pattern: a cast of one row that is not JSON would fail the whole query. Labels need no escapes in JSON."""
    escaped = f"regexp_replace({key}, '([^[:alnum:]_])', '\\\\\\1', 'g')"
    return f'substring({text} from \'"\' || {escaped} || \'":\\s*"([^"]*)"\')'


def labelled(selector: Selector, labels: Column[Any]) -> Conditions:
    return [_required(each, LabelOf(labels, literal(each.key, type_=Text()))) for each in selector.requirements]


def _required(requirement: Requirement, value: ColumnElement[Any]) -> ColumnElement[bool]:
    match requirement.operator:
        case Operator.EXISTS:
            return value.is_not(None)
        case Operator.ABSENT:
            return value.is_(None)
        case Operator.IN:
            return value.in_(requirement.values)
        case Operator.NOT_IN:
            return or_(value.is_(None), value.not_in(requirement.values))
