"""Rollouts: their desired state and their progress."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select

from homeport.adapters.store import schema
from homeport.adapters.store.columns import object_from_json, to_json
from homeport.adapters.store.commit.guards import put_all
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder, containing
from homeport.adapters.store.rows import record
from homeport.core.model.rollout import RolloutRow
from homeport.ports import RolloutFilter
from homeport.vocabulary import RolloutId, RolloutState

_ROLLOUTS = schema.rollouts.c


async def find_rollout(connection: SqlConnection, rollout_id: RolloutId) -> RolloutRow | None:
    query = select(schema.rollouts).where(_ROLLOUTS.id == rollout_id)
    return await record(connection, query, _rollout, schema.rollouts)


async def put_rollouts(connection: SqlConnection, rollouts: Sequence[RolloutRow]) -> None:
    await put_all(connection, schema.rollouts, ((rollout.id, _row(rollout)) for rollout in rollouts), _rollout)


def _rollout(row: Row[Any]) -> RolloutRow:
    values = dict(row._mapping)
    values["intent"] = object_from_json(values["intent"])
    values["progress"] = object_from_json(values["progress"])
    values["state"] = RolloutState(values["state"])
    return RolloutRow(**values)


def _row(rollout: RolloutRow) -> dict[str, Any]:
    row = {column.name: getattr(rollout, column.name) for column in schema.rollouts.columns}
    row["intent"] = to_json(rollout.intent)
    row["progress"] = to_json(rollout.progress)
    row["state"] = rollout.state.value
    return row


def _conditions(where: RolloutFilter) -> Conditions:
    found: Conditions = [] if where.name is None else [_ROLLOUTS.name == where.name]
    if where.states is not None:
        found.append(_ROLLOUTS.state.in_(sorted(state.value for state in where.states)))
    return [*found, *containing(where.contains, _ROLLOUTS.name)]


SOURCE: ListSource[RolloutRow, RolloutFilter] = ListSource(
    table=schema.rollouts,
    record=_rollout,
    conditions=_conditions,
    orders={"created": SortOrder((_ROLLOUTS.created_at, _ROLLOUTS.id), descending=frozenset({"created_at", "id"}))},
)
