"""A database with a good row in every table, and beside it every kind of garbage in every column of every table."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Table

from homeport.adapters.store import columns, schema
from homeport.core.jobs.job import Job, JobSpec, JobType
from homeport.core.model.caller import CallerKind, Role
from homeport.core.model.node import Capabilities
from homeport.core.pipelines.model import Definition, Owner, Run
from homeport.vocabulary import JobId, JobState, ProfileType, RunId, RunState, SiteName
from homeport.wire.jobs import job_to_json
from homeport.wire.pipelines import definition_to_json, run_to_json

NOW: Final = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
AT: Final = "2026-03-01 12:30:00.000000"
KEY: Final = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"
DIGEST: Final = "sha256:" + "a" * 64

NOT_UTF8: Final = object()
"""Stored as text all the same."""
GARBAGE: Final[tuple[Any, ...]] = (
    "garbage",
    "",
    "nul\0in it",
    NOT_UTF8,
    b"\xff\xfe",
    2**63 - 1,
    -1,
    1.5,
    float("inf"),
    "9" * 5_000,
    "[]",
    "{}",
    "null",
    "[" * 100_000,
    '{"number": NaN, "other": 1e999}',
    '[1, {"kind": 7}]',
    '{"kind": [], "id": {}, "at": 0, "region": 7, "spec": [], "source": 1}',
)

_OWNER = Owner("ann", Role.ADMIN, (), "", CallerKind.TOKEN)
_JOB = Job(
    id=JobId("job-1"),
    site=SiteName("home"),
    spec=JobSpec(JobType.COMMAND, ("true",)),
    state=JobState.COMPLETED,
    version=1,
    created_at=NOW,
    created_by="ann",
    updated_at=NOW,
)
_RUN = Run(
    id=RunId("run-1"),
    pipeline="nightly",
    site=None,
    state=RunState.SUCCEEDED,
    version=1,
    created_at=NOW,
    updated_at=NOW,
    source="steps: []",
    inputs={},
    owner=_OWNER,
    trigger="person",
    steps=(),
)
_DEFINITION = Definition(
    name="nightly", site=None, version=1, updated_at=NOW, next_at=None, source="", owner=_OWNER, created_at=NOW
)
_CAPABILITIES = Capabilities(
    cpu_cores=8,
    memory_bytes=1,
    disk_bytes=1,
    disk_free_bytes=1,
    os="linux",
    architecture="arm64",
    engine="podman",
    engine_version="5",
    profile_types=(ProfileType.COMPOSE,),
)

_INTENT = {
    **dict.fromkeys(("rollout", "name", "profile", "author"), "id"),
    "app": dict.fromkeys(("category", "name", "version"), "hello"),
    "targets": {"sites": ["home"]},
    "waves": [],
    "state": "running",
    "created": NOW.isoformat(),
}
GOOD: Final[dict[str, dict[str, Any]]] = {
    "apps": {"id": "app-1", "category": "demo", "app_name": "hello", "version": "1.0.0", "tags": "[]"},
    "profiles": {"app_id": "app-1", "type": "compose", "device_constraints": None},
    "components": {"app_id": "app-1"},
    "sites": {"name": "home", "features": "[]", "applied_commit": None, "problem": None, "silent_since": None},
    "nodes": {
        "site": "home",
        "id": "node-1",
        "liveness": "live",
        "features": "[]",
        "tunable": "{}",
        "capabilities": json.dumps(asdict(_CAPABILITIES)),
    },
    "deployments": {"id": KEY, "site": "home", "state": "INSTALLED", "archived_at": None, "revision": DIGEST},
    "instances": {"deployment_id": KEY, "node_id": "node-1", "state": "INSTALLED", "revision": DIGEST},
    "revisions": {"deployment_id": KEY, "revision": DIGEST},
    "pins": {"deployment_id": KEY, "revision": DIGEST},
    "reports_aside": {"site": "home"},
    "holds": {"site": "home", "deployment_id": KEY},
    "rollouts": {"state": "done", "intent": json.dumps(_INTENT), "progress": '{"first_commit": "a"}'},
    "history": {
        "deployment_id": KEY,
        "before": "PENDING",
        "after": "INSTALLING",
        "happening": "scheduled",
        "actor": "site",
    },
    "events": {"kind": "site.joined", "deployment_id": KEY, "stream": "fleet", "subject_kind": None},
    "desired_files": {"deployment_id": KEY, "path": f"deployments/home/{KEY}.yaml"},
    "telemetry": {"site": "home", "node_id": "node-1", "resolution_seconds": 60},
    "heartbeats": {"site": "home", "node_id": "node-1", "state": "live", "finish": None},
    "tokens": {"role": "viewer", "sites": "[]"},
    "identities": {"kind": "client", "standing": "accepted"},
    "join_tokens": {"kind": "client"},
    "audit": {"result": "done"},
    "secrets": {"site": "home", "name": "password"},
    "margo_manifests": {"site": "home", "recent": "[1]"},
    "margo_artifacts": {"site": "home", "digest": DIGEST},
    "margo_devices": {"site": "home"},
    "margo_statuses": {"site": "home", "deployment_id": KEY, "components": "[]", "error": None},
    "tasks": {"id": "task-1", "state": "queued"},
    "artifacts": {"id": "artifact-1", "tags": "[]", "owner": "ann"},
    "usage": {"day": "2026-03-01"},
    "site_usage": {"site": "home", "day": "2026-03-01"},
    "catalog_models": {"id": "tiny", "document": json.dumps({"id": "tiny"})},
    "jobs": {"site": "home", "id": "job-1", "state": "COMPLETED", "record": json.dumps(job_to_json(_JOB))},
    "job_files": {"site": "home", "job_id": "job-1", "path": "out.txt"},
    "pipelines": {"name": "nightly", "site": "", "record": json.dumps(definition_to_json(_DEFINITION))},
    "pipeline_runs": {
        "id": "run-1",
        "site": "",
        "state": "SUCCEEDED",
        "record": json.dumps(run_to_json(_RUN)),
        "cancelled_by": None,
    },
    "pipeline_results": {"run_id": "run-1", "step": "one", "item": 0, "output": "1"},
    "outbox": {"body": '{"kind":"synced"}'},
}
_OWN_KEYS: Final = {"counters", "role_values", "leases", "bus_messages"}
"""Tables whose keys are names in the code: their rows are spoilt one after the other, not beside a good one."""


def good_row(table: Table) -> dict[str, Any]:
    return {column.name: _plain(column) for column in table.columns} | GOOD.get(table.name, {})


def _plain(column: Column[Any]) -> Any:
    if isinstance(column.type, columns.MomentColumn):
        return AT
    if isinstance(column.type, columns.Bytes):
        return b"content"
    if isinstance(column.type, columns.Flag):
        return 1
    if not isinstance(column.type, columns.Words):
        return 1
    is_json = column.name in {"descriptor", "properties", "labels", "parameters", "intent", "progress", "data"}
    return "{}" if is_json or column.name in {"detail", "extensions", "document"} else column.name


def put_good_rows(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        for table in schema.metadata.tables.values():
            if table.name not in _OWN_KEYS:
                _insert(connection, table, good_row(table))


def put_bad_rows(database: Path, tables: frozenset[str] | None = None) -> int:
    """Returns how many."""
    count = 0
    with sqlite3.connect(database) as connection:
        for table in schema.metadata.tables.values():
            if table.name in _OWN_KEYS or (tables is not None and table.name not in tables):
                continue
            for row in bad_rows(table):
                count += _insert(connection, table, row)
    return count


def bad_rows(table: Table) -> Iterator[dict[str, Any]]:
    """Each is the good row under another key, with one garbage value."""
    good = good_row(table)
    for place, column in enumerate(table.columns):
        for number, value in enumerate(GARBAGE):
            yield {**good, **_another_key(table, f"{place}-{number}", place * 100 + number + 10), column.name: value}


def _another_key(table: Table, word: str, number: int) -> dict[str, Any]:
    """In its last column, so that the row is found together with the good one."""
    unique = {"version": word} if table.name == "apps" else {}
    last = list(table.primary_key)[-1]
    if isinstance(last.type, columns.Words):
        return {last.name: f"{good_row(table)[last.name]}-{word}", **unique}
    return (
        {last.name: f"2026-04-01 12:{number % 60:02}:00.{number:06}"}
        if isinstance(last.type, columns.MomentColumn)
        else {last.name: number}
    )


def _insert(connection: sqlite3.Connection, table: Table, row: dict[str, Any]) -> int:
    """What the database itself refuses, it can never hold."""
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("CAST(x'ff61' AS TEXT)" if value is NOT_UTF8 else "?" for value in row.values())
    values = [value for value in row.values() if value is not NOT_UTF8]
    try:
        return connection.execute(f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', values).rowcount
    except sqlite3.IntegrityError:
        return 0
