"""Tasks, artifacts and usage of the inference plane."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, delete, func, or_, select, update

from homeport.adapters.store import schema
from homeport.adapters.store.columns import from_json, to_json
from homeport.adapters.store.commit.statements import insert_or_add, insert_or_nothing, insert_or_update, pieces
from homeport.adapters.store.databases.errors import SqlConnection
from homeport.adapters.store.rows import record, records, sound_rows
from homeport.core.inference.records import StoredArtifact, StoredTask, TaskState, Usage, fair_share, kept_of
from homeport.core.values.stored import strings_of
from homeport.vocabulary import SiteName

_TASKS = schema.tasks.c
_ARTIFACTS = schema.artifacts.c
_OWNERS = schema.artifact_owners.c
_USAGE = schema.usage.c
_OF_SITES = schema.site_usage.c


async def find_task(connection: SqlConnection, task_id: str) -> StoredTask | None:
    return await record(connection, select(schema.tasks).where(_TASKS.id == task_id), _task, schema.tasks)


async def find_tasks(connection: SqlConnection, task_ids: Sequence[str]) -> Sequence[StoredTask]:
    found: list[StoredTask] = []
    for piece in pieces(task_ids):
        found += await records(connection, select(schema.tasks).where(_TASKS.id.in_(piece)), _task, schema.tasks)
    return found


async def find_unfinished(connection: SqlConnection) -> Sequence[StoredTask]:
    query = select(schema.tasks).where(_TASKS.state != TaskState.ENDED.value).order_by(_TASKS.at, _TASKS.id)
    return await records(connection, query, _task, schema.tasks)


async def add_tasks(connection: SqlConnection, tasks: Sequence[StoredTask]) -> Sequence[StoredTask]:
    """Inserts those whose id is new; returns the others. Mostly all are new: with SQLite, whose driver counts what it
    has inserted, nothing is looked up then."""
    if not tasks:
        return ()
    if connection.is_postgresql:
        known = {task.id: task for task in await find_tasks(connection, [task.id for task in tasks])}
        await put_tasks(connection, [task for task in tasks if task.id not in known])
        return list(known.values())
    if await connection.append(schema.tasks, [_task_row(task) for task in tasks], or_nothing=True) == len(tasks):
        return ()
    given = {task.id: task for task in tasks}
    return [task for task in await find_tasks(connection, list(given)) if task != given[task.id]]


async def put_tasks(connection: SqlConnection, tasks: Sequence[StoredTask]) -> None:
    if tasks:
        await connection.run(insert_or_update(connection, schema.tasks), [_task_row(task) for task in tasks])


async def start_tasks(connection: SqlConnection, task_ids: Sequence[str]) -> None:
    for piece in pieces(task_ids):
        is_queued = (_TASKS.id.in_(piece), _TASKS.state == TaskState.QUEUED.value)
        await connection.run(update(schema.tasks).where(*is_queued).values(state=TaskState.STARTED.value))


async def trim_tasks(connection: SqlConnection, keep: int) -> None:
    ended = select(_TASKS.id).where(_TASKS.state == TaskState.ENDED.value).order_by(_TASKS.at.desc(), _TASKS.id)
    old = [row.id for row in await sound_rows(connection, ended.offset(keep), schema.tasks)]
    for piece in pieces(old):
        await connection.run(delete(schema.tasks).where(_TASKS.id.in_(piece)))


async def find_artifact(connection: SqlConnection, artifact_id: str) -> StoredArtifact | None:
    query = select(schema.artifacts).where(_ARTIFACTS.id == artifact_id)
    return await record(connection, query, _artifact, schema.artifacts)


async def find_artifacts(connection: SqlConnection, owner: str | None, *, limit: int) -> list[StoredArtifact]:
    query = select(schema.artifacts).order_by(_ARTIFACTS.created_ms.desc(), _ARTIFACTS.id).limit(limit)
    if owner is not None:
        shared = select(_OWNERS.artifact_id).where(_OWNERS.owner == owner)
        query = query.where(or_(_ARTIFACTS.owner.in_(("", owner)), _ARTIFACTS.id.in_(shared)))
    return await records(connection, query, _artifact, schema.artifacts)


def _artifact(row: "Row[Any]") -> StoredArtifact:
    tags, document = strings_of(row.tags), from_json(row.document)
    return StoredArtifact(row.id, row.kind, row.created_ms, tags, document, row.owner)


async def owns_artifact(connection: SqlConnection, artifact_id: str, owner: str) -> bool:
    artifact = await connection.first(select(_ARTIFACTS.owner).where(_ARTIFACTS.id == artifact_id))
    if artifact is None or artifact.owner in {"", owner}:
        return artifact is not None
    query = select(_OWNERS.owner).where(_OWNERS.artifact_id == artifact_id, _OWNERS.owner == owner)
    return await connection.first(query) is not None


async def put_artifacts(connection: SqlConnection, artifacts: Sequence[StoredArtifact]) -> None:
    """The same document a second time changes nothing."""
    if artifacts:
        rows = [
            {
                "id": each.id,
                "kind": each.kind,
                "created_ms": each.created_ms,
                "tags": to_json(each.tags),
                "document": to_json(each.document),
                "owner": each.owner,
            }
            for each in artifacts
        ]
        await connection.run(insert_or_nothing(connection, schema.artifacts), rows)


async def share_artifacts(connection: SqlConnection, artifacts: Sequence[StoredArtifact]) -> None:
    """After `put_artifacts`: who posted what another has posted before has it too."""
    query = select(_ARTIFACTS.id, _ARTIFACTS.owner)
    owners = {
        row.id: row.owner
        for piece in pieces(sorted({each.id for each in artifacts}))
        for row in await sound_rows(connection, query.where(_ARTIFACTS.id.in_(piece)), schema.artifacts)
    }
    shared = {(each.id, each.owner) for each in artifacts if owners.get(each.id) not in {None, "", each.owner}}
    if shared:
        rows = [{"artifact_id": artifact_id, "owner": owner} for artifact_id, owner in sorted(shared)]
        await connection.run(insert_or_nothing(connection, schema.artifact_owners), rows)


async def trim_artifacts(connection: SqlConnection, keep: int, bytes_max: int) -> None:
    """One key cannot crowd out what others keep."""
    size = func.length(_ARTIFACTS.document)
    query = select(_ARTIFACTS.owner, func.count().label("kept"), func.sum(size).label("size"))
    owners = await sound_rows(connection, query.group_by(_ARTIFACTS.owner), schema.artifacts)
    count_share = fair_share((row.kept for row in owners), keep)
    bytes_share = fair_share((int(row.size) for row in owners), bytes_max)
    for owner in owners:
        if owner.kept <= count_share and owner.size <= bytes_share:
            continue
        newest = select(_ARTIFACTS.id, size.label("size")).where(_ARTIFACTS.owner == owner.owner)
        newest = newest.order_by(_ARTIFACTS.created_ms.desc(), _ARTIFACTS.id)
        rows = await sound_rows(connection, newest, schema.artifacts)
        kept = kept_of((row.size for row in rows), count_share=count_share, bytes_share=bytes_share)
        for piece in pieces([row.id for row in rows[kept:]]):
            await _drop_artifacts(connection, piece)


async def _drop_artifacts(connection: SqlConnection, artifact_ids: Sequence[str]) -> None:
    """Of one owner. What another key has posted too becomes that key's, and counts for its share from now on."""
    heirs = select(_OWNERS.artifact_id, func.min(_OWNERS.owner).label("owner"))
    heirs = heirs.where(_OWNERS.artifact_id.in_(artifact_ids)).group_by(_OWNERS.artifact_id)
    inherited = {row.artifact_id: row.owner for row in await sound_rows(connection, heirs, schema.artifact_owners)}
    for artifact_id, owner in inherited.items():
        await connection.run(update(schema.artifacts).where(_ARTIFACTS.id == artifact_id).values(owner=owner))
        one = (_OWNERS.artifact_id == artifact_id, _OWNERS.owner == owner)
        await connection.run(delete(schema.artifact_owners).where(*one))
    gone = [each for each in artifact_ids if each not in inherited]
    if gone:
        await connection.run(delete(schema.artifacts).where(_ARTIFACTS.id.in_(gone)))


async def find_usage(connection: SqlConnection, since_day: str) -> Sequence[Usage]:
    query = select(schema.usage).where(_USAGE.day >= since_day).order_by(_USAGE.caller, _USAGE.day, _USAGE.model)
    return await records(connection, query, _usage, schema.usage)


async def add_usage(connection: SqlConnection, usage: Sequence[Usage]) -> None:
    """Adds to what is there. Several processes may do it at once."""
    if usage:
        # In one order everywhere, so that no two processes wait for each other's rows.
        rows = sorted((asdict(each) for each in usage), key=lambda row: (row["caller"], row["day"], row["model"]))
        await connection.run(insert_or_add(connection, schema.usage), rows)


async def find_site_usage(connection: SqlConnection, since_day: str) -> Sequence[tuple[SiteName, Usage]]:
    order = (_OF_SITES.caller, _OF_SITES.day, _OF_SITES.model, _OF_SITES.site)
    query = select(schema.site_usage).where(_OF_SITES.day >= since_day).order_by(*order)
    return await records(connection, query, _site_usage, schema.site_usage)


async def put_site_usage(connection: SqlConnection, site: SiteName, usage: Sequence[Usage]) -> None:
    """Numbers only grow: what is said again, or late, changes nothing."""
    rows = [{"site": site, **asdict(each)} for each in usage]
    if rows:
        await connection.run(insert_or_update(connection, schema.site_usage, only_if="requests"), rows)


async def count_site_usage(connection: SqlConnection, site: SiteName) -> int:
    query = select(func.count()).select_from(schema.site_usage).where(_OF_SITES.site == site)
    return int((await connection.rows(query))[0][0])


def _site_usage(row: Row[Any]) -> tuple[SiteName, Usage]:
    found = dict(row._mapping)
    return SiteName(found.pop("site")), Usage(**found)


def _usage(row: Row[Any]) -> Usage:
    return Usage(**row._mapping)


def _task_row(task: StoredTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "caller": task.caller,
        "digest": task.digest,
        "state": task.state.value,
        "body": task.body,
        "answer": task.answer,
        "outcome": task.outcome,
        "at": task.at,
    }


def _task(row: Row[tuple[object, ...]]) -> StoredTask:
    return StoredTask(**{**row._mapping, "state": TaskState(row.state)})
