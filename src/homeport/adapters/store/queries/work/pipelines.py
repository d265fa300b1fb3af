"""Runs of pipelines, what their steps have left, and pipelines that are kept by name."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, or_, select, update

from homeport.adapters.store import schema
from homeport.adapters.store.commit.guards import put_all
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder, at_sites
from homeport.adapters.store.rows import record, records, sound_rows
from homeport.core.pipelines.lifecycle import RUN_ENDED
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.ports import PipelineFilter, RunFilter
from homeport.vocabulary import RunId, RunState, SiteName
from homeport.wire.pipelines import definition_from_json, definition_to_json, run_from_json, run_to_json

_RUNS = schema.pipeline_runs.c
_RESULTS = schema.pipeline_results.c
_PIPELINES = schema.pipelines.c
_ENDED = sorted(state.value for state in RUN_ENDED)


async def find_run(connection: SqlConnection, run_id: RunId) -> Run | None:
    query = select(schema.pipeline_runs).where(_RUNS.id == run_id)
    return await record(connection, query, _run, schema.pipeline_runs)


async def find_runs_called(connection: SqlConnection, prefix: str, limit: int) -> Sequence[Run]:
    """By range, so that the index is used and no character of the prefix is special."""
    is_it = or_(_RUNS.id == prefix, (_RUNS.id > prefix) & (_RUNS.id < prefix + "\U0010ffff"))
    query = select(schema.pipeline_runs).where(is_it).order_by(_RUNS.id).limit(limit)
    return await records(connection, query, _run, schema.pipeline_runs)


async def put_runs(connection: SqlConnection, runs: Sequence[Run]) -> None:
    await put_all(connection, schema.pipeline_runs, ((run.id, _run_row(run)) for run in runs), _run)


async def find_results(connection: SqlConnection, run_id: RunId) -> Mapping[ItemKey, ItemResult]:
    query = select(schema.pipeline_results).where(_RESULTS.run_id == run_id)
    return dict(await records(connection, query, _result, schema.pipeline_results))


def _result(row: Row[Any]) -> tuple[ItemKey, ItemResult]:
    return (row.step, row.item), ItemResult(json.loads(row.output), row.log)


async def put_results(connection: SqlConnection, run_id: RunId, results: Mapping[ItemKey, ItemResult]) -> None:
    rows = [
        {"run_id": run_id, "step": step, "item": item, "output": json.dumps(each.output), "log": each.log}
        for (step, item), each in results.items()
    ]
    if rows:
        await connection.run(insert_or_update(connection, schema.pipeline_results), rows)


async def trim_runs(connection: SqlConnection, *, keep: int, before: datetime) -> int:
    ended = _RUNS.state.in_(_ENDED)
    ids = select(_RUNS.id).where(ended)
    newest = ids.order_by(_RUNS.finished_at.desc(), _RUNS.id)
    old = await sound_rows(connection, ids.where(_RUNS.finished_at < before), schema.pipeline_runs)
    many = await sound_rows(connection, newest.offset(keep), schema.pipeline_runs)
    gone = sorted({row.id for row in (*old, *many)})
    for part in pieces(gone):
        await connection.run(delete(schema.pipeline_results).where(_RESULTS.run_id.in_(part)))
        await connection.run(delete(schema.pipeline_runs).where(_RUNS.id.in_(part)))
    return len(gone)


async def find_pipeline(connection: SqlConnection, name: str) -> Definition | None:
    query = select(schema.pipelines).where(_PIPELINES.name == name)
    return await record(connection, query, _definition, schema.pipelines)


async def find_scheduled(connection: SqlConnection) -> Sequence[Definition]:
    query = select(schema.pipelines).where(_PIPELINES.next_at.is_not(None)).order_by(_PIPELINES.next_at)
    return await records(connection, query, _definition, schema.pipelines)


async def put_pipelines(connection: SqlConnection, definitions: Sequence[Definition]) -> None:
    rows = ((each.name, _definition_row(each)) for each in definitions)
    await put_all(connection, schema.pipelines, rows, _definition)


async def set_due(connection: SqlConnection, definition: Definition, next_at: datetime | None) -> None:
    is_it = (_PIPELINES.name == definition.name, _PIPELINES.version == definition.version)
    await connection.run(update(schema.pipelines).where(*is_it).values(next_at=next_at))


async def remove_pipeline(connection: SqlConnection, name: str) -> None:
    await connection.run(delete(schema.pipelines).where(_PIPELINES.name == name))


def _run(row: Row[Any]) -> Run:
    return run_from_json(
        json.loads(row.record),
        id=RunId(row.id),
        pipeline=row.pipeline,
        site=SiteName(row.site) if row.site else None,
        state=RunState(row.state),
        version=int(row.version),
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        cancelled_by=row.cancelled_by,
    )


def _run_row(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "site": run.site or "",
        "state": run.state.value,
        "version": run.version,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "finished_at": run.finished_at,
        "cancelled_by": run.cancelled_by,
        "record": json.dumps(run_to_json(run)),
        "depth": run.depth,
    }


def _definition(row: Row[Any]) -> Definition:
    return definition_from_json(
        json.loads(row.record),
        name=row.name,
        site=SiteName(row.site) if row.site else None,
        version=int(row.version),
        updated_at=row.updated_at,
        next_at=row.next_at,
    )


def _definition_row(definition: Definition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "site": definition.site or "",
        "version": definition.version,
        "updated_at": definition.updated_at,
        "next_at": definition.next_at,
        "record": json.dumps(definition_to_json(definition)),
    }


def _run_conditions(where: RunFilter) -> Conditions:
    found = at_sites(where, _RUNS.site)
    if where.pipeline is not None:
        found.append(_RUNS.pipeline == where.pipeline)
    if where.states is not None:
        found.append(_RUNS.state.in_(sorted(state.value for state in where.states)))
    if where.depth is not None:
        found.append(_RUNS.depth == where.depth)
    return found


_BY_CREATION = (_RUNS.created_at, _RUNS.id)
RUNS: ListSource[Run, RunFilter] = ListSource(
    table=schema.pipeline_runs,
    record=_run,
    conditions=_run_conditions,
    words={"state": RunState},
    orders={
        "created": SortOrder(_BY_CREATION, descending=frozenset({"created_at", "id"})),
        "oldest": SortOrder(_BY_CREATION),
    },
)
PIPELINES: ListSource[Definition, PipelineFilter] = ListSource(
    table=schema.pipelines,
    record=_definition,
    conditions=lambda where: at_sites(where, _PIPELINES.site),
    orders={"name": SortOrder((_PIPELINES.name,))},
)
