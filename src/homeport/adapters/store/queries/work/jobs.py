"""Jobs, their files, and the reports about them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, or_, select, tuple_

from homeport.adapters.store import schema
from homeport.adapters.store.columns import storable
from homeport.adapters.store.commit.guards import put_all
from homeport.adapters.store.commit.statements import insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.queries.paging import Conditions, ListSource, SortOrder, at_sites, containing
from homeport.adapters.store.rows import record, records, sound_rows
from homeport.core.jobs.job import ENDED, Job, JobFile
from homeport.ports import JobFilter, JobReport
from homeport.vocabulary import JobId, JobState, SiteName
from homeport.wire.jobs import job_from_json, job_to_json

_JOBS = schema.jobs.c
_FILES = schema.job_files.c
_REPORTS = schema.job_reports.c
_ENDED = sorted(state.value for state in ENDED)


async def find_jobs(connection: SqlConnection, keys: Sequence[tuple[SiteName, JobId]]) -> Sequence[Job]:
    found: list[Job] = []
    for part in pieces(keys):
        query = select(schema.jobs).where(tuple_(_JOBS.site, _JOBS.id).in_(part))
        found += await records(connection, query, _job, schema.jobs)
    return found


async def find_jobs_called(connection: SqlConnection, prefix: str, limit: int) -> Sequence[Job]:
    """By range, so that the index is used and no character of the prefix is special."""
    is_it = or_(_JOBS.id == prefix, (_JOBS.id > prefix) & (_JOBS.id < prefix + "\U0010ffff"))
    query = select(schema.jobs).where(is_it).order_by(_JOBS.id, _JOBS.site).limit(limit)
    return await records(connection, query, _job, schema.jobs)


async def find_file(connection: SqlConnection, job: Job, path: str) -> bytes | None:
    is_it = (_FILES.site == job.site, _FILES.job_id == job.id, _FILES.path == path)
    query = select(_FILES.content).where(*is_it)
    return await record(connection, query, lambda row: bytes(row.content), schema.job_files)


async def put_jobs(connection: SqlConnection, jobs: Sequence[Job]) -> None:
    await put_all(connection, schema.jobs, ((job.key, _row(job)) for job in jobs), _job)


async def put_files(connection: SqlConnection, job: Job, files: Sequence[JobFile]) -> None:
    await connection.run(delete(schema.job_files).where(_FILES.site == job.site, _FILES.job_id == job.id))
    rows = [
        {"site": job.site, "job_id": job.id, "path": storable(file.path), "content": file.content} for file in files
    ]
    if rows:
        await connection.run(insert_or_update(connection, schema.job_files), rows)


async def trim_jobs(connection: SqlConnection, *, keep: int, before: datetime) -> int:
    ended = _JOBS.state.in_(_ENDED)
    keys = select(_JOBS.site, _JOBS.id)
    newest = keys.where(ended).order_by(_JOBS.finished_at.desc(), _JOBS.site, _JOBS.id)
    old = await sound_rows(connection, keys.where(ended, _JOBS.finished_at < before), schema.jobs)
    many = await sound_rows(connection, newest.offset(keep), schema.jobs)
    gone = sorted({(row.site, row.id) for row in (*old, *many)})
    for part in pieces(gone):
        await connection.run(delete(schema.job_files).where(tuple_(_FILES.site, _FILES.job_id).in_(part)))
        await connection.run(delete(schema.jobs).where(tuple_(_JOBS.site, _JOBS.id).in_(part)))
    return len(gone)


async def find_reports(connection: SqlConnection, *, after: int, limit: int) -> Sequence[JobReport]:
    query = select(schema.job_reports).where(_REPORTS.position > after).order_by(_REPORTS.position).limit(limit)
    return await records(connection, query, lambda row: JobReport(row.position, row.body), schema.job_reports)


async def add_reports(connection: SqlConnection, reports: Sequence[JobReport]) -> None:
    if reports:
        rows = [{"position": each.position, "body": each.body} for each in reports]
        await connection.run(insert_or_update(connection, schema.job_reports), rows)


async def drop_reports(connection: SqlConnection, up_to_position: int) -> None:
    await connection.run(delete(schema.job_reports).where(_REPORTS.position <= up_to_position))


def _job(row: Row[Any]) -> Job:
    job = job_from_json(json.loads(row.record))
    return replace(job, state=JobState(row.state), version=row.version, is_delivered=bool(row.is_delivered))


def _row(job: Job) -> dict[str, Any]:
    return {
        "site": job.site,
        "id": job.id,
        "state": job.state.value,
        "version": job.version,
        "node_id": job.node_id,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "finished_at": job.finished_at,
        "is_delivered": job.is_delivered,
        "is_cancelled": job.cancelled_by is not None,
        "record": json.dumps(job_to_json(job)),
    }


def _conditions(where: JobFilter) -> Conditions:
    found = [*at_sites(where, _JOBS.site), *containing(where.contains, _JOBS.id + "@" + _JOBS.site)]
    if where.states is not None:
        found.append(_JOBS.state.in_(sorted(state.value for state in where.states)))
    if where.node is not None:
        found.append(_JOBS.node_id == where.node)
    if where.delivered is not None:
        found.append(_JOBS.is_delivered == where.delivered)
    if where.cancelled is not None:
        found.append(_JOBS.is_cancelled == where.cancelled)
    return found


_BY_CREATION = (_JOBS.created_at, _JOBS.site, _JOBS.id)
_BY_CHANGE = (_JOBS.updated_at, _JOBS.site, _JOBS.id)
SOURCE: ListSource[Job, JobFilter] = ListSource(
    table=schema.jobs,
    record=_job,
    conditions=_conditions,
    words={"state": JobState},
    orders={
        "created": SortOrder(_BY_CREATION, descending=frozenset({"created_at", "site", "id"})),
        "oldest": SortOrder(_BY_CREATION),
        "updated": SortOrder(_BY_CHANGE, descending=frozenset({"updated_at", "site", "id"})),
    },
)
