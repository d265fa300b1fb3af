"""Any value in any column of any table costs its own row: everything else is read, by every query."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from homeport.adapters.store.databases.engine import parse_address
from homeport.adapters.store.open import open_store
from homeport.core.model.node import Tunable
from homeport.core.values.filters import WORDS, parse_filter
from homeport.core.values.selectors import parse_selector
from homeport.ports import NODES, SITES, WHOLE, DeploymentFilter, NodeFilter, Reader, SiteFilter, Store
from tests.conformance.store import records
from tests.support.bad_rows import DIGEST, KEY, NOW, put_bad_rows, put_good_rows

pytestmark = pytest.mark.anyio

_RANGE = {"start": NOW - timedelta(days=1), "end": NOW + timedelta(days=900)}
CALLS: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "app": (("app-1",), {}),
    "profiles": (("app-1",), {}),
    "components": (("app-1",), {}),
    "site": (("home",), {}),
    "nodes_called": (("node-1",), {}),
    "deployments": ((DeploymentFilter(),), {}),
    "deployment": ((KEY,), {}),
    "deployments_by_ids": (([KEY],), {}),
    "deployments_by_prefix": (("6f",), {}),
    "rollout": (("id",), {}),
    "jobs": (([("home", "job-1")],), {}),
    "jobs_called": (("job",), {"limit": 10_000}),
    "job_reports": ((), {"after": 0, "limit": 10_000}),
    "pipeline_run": (("run-1",), {}),
    "pipeline_runs_called": (("run",), {"limit": 10_000}),
    "pipeline": (("nightly",), {}),
    "history": ((KEY,), {}),
    "history_after": ((0,), {"limit": 10_000}),
    "events": ((), {"after": 0, "limit": 10_000}),
    "has_event_about": (("deployment",), {"after": 0}),
    "token": (("id",), {}),
    "identity": (("spiffe_id",), {}),
    "join_token": (("id",), {}),
    "audit": ((), {"after": 0, "limit": 10_000}),
    "secret": (("home", "password"), {}),
    "revisions": ((KEY,), {}),
    "revisions_of": (([KEY],), {}),
    "revision_contents": (({KEY: DIGEST},), {}),
    "task": (("task-1",), {}),
    "tasks": ((["task-1"],), {}),
    "artifact": (("artifact-1",), {}),
    "owns_artifact": (("artifact-1", "ann"), {}),
    "artifacts": ((None,), {"limit": 10_000}),
    "catalog_model": (("tiny",), {}),
    "usage": (("2026-01-01",), {}),
    "site_usage": (("2026-01-01",), {}),
    "count_site_usage": (("home",), {}),
    "versions_kept": (([KEY],), {}),
    "margo_manifests_of": ((["home"],), {}),
    "margo_artifact": (("home", DIGEST), {}),
    "margo_devices": (("home",), {}),
    "margo_device_ids": (("home",), {}),
    "margo_devices_of": ((["home"],), {}),
    "margo_statuses": (("home",), {}),
    "outbox": ((), {"limit": 10_000}),
    "value": (("key",), {}),
    "value_as": (("key", str), {}),
    "values": ((["key"],), {}),
    "instance_values": (("name", str), {}),
    "heard_longest_ago": ((), {"limit": 10_000}),
    "telemetry": (("home", "node-1", 60), _RANGE),
    "telemetry_keys": (("home", 60), {"start": _RANGE["start"]}),
    "heartbeats": (("home", "node-1"), {**_RANGE, "limit": 10_000}),
    "open_heartbeats": (("home",), {}),
}
COUNTED = {
    "last_event_id",
    "outbox_size",
    "outbox_bytes",
    "outbox_left",
    "last_audit",
    "count_catalog_models",
    "count_site_usage",
    "margo_device_counts",
    "peer_protocols",
}
ELSEWHERE = {"page", "counts", "left_out", "job_file", "pipeline_results"}


def every_query() -> list[str]:
    return sorted(name for name in dir(Reader) if not name.startswith("_") and name not in ELSEWHERE)


async def answers(store: Store) -> dict[str, Any]:
    async with store.read() as reader:
        found = {}
        for name in every_query():
            arguments, options = CALLS.get(name, ((), {}))
            found[name] = await getattr(reader, name)(*arguments, **options)
        job, run = found["jobs"][0], found["pipeline_run"]
        found["job_file"] = await reader.job_file(job, "out.txt")
        found["pipeline_results"] = await reader.pipeline_results(run)
        return found


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    async with open_store(str(tmp_path / "role.db")):
        pass
    put_good_rows(tmp_path / "role.db")
    return tmp_path / "role.db"


async def test_garbage_in_any_column_of_any_table_costs_its_own_row(database: Path) -> None:
    async with open_store(str(database)) as store:
        before = await answers(store)
    assert put_bad_rows(database) > 3_000
    async with open_store(str(database)) as store:
        after = await answers(store)
        assert await store.write(lambda tx: tx.last_event_id()) < 2**62
    for name, found in before.items():
        if name in COUNTED:
            continue
        if isinstance(found, list | tuple):
            assert found, name
            assert [each for each in found if each not in after[name]] == [], name
        elif isinstance(found, Mapping):
            assert found.items() <= after[name].items(), name
        else:
            assert found == after[name], name


@pytest.mark.parametrize("damaged", ["not JSON", '{"region": "eu"', "[" * 5_000])
async def test_damaged_labels_fail_no_filter_by_label(url: str, damaged: str) -> None:
    """PostgreSQL ends a query at the first text that it cannot read as JSON."""
    labels = {"good": {"region": "eu", "a.b/c": "x"}, "bad": {"region": "eu"}, "other": {"axb/c": "x"}}
    async with open_store(url) as store:
        for name, given in labels.items():
            await store.write(lambda tx, name=name, given=given: tx.put_site(records.site(name, labels=given)))  # type: ignore[misc]
            node = records.node("n", name, tunable=Tunable(labels=given))
            await store.write(lambda tx, node=node: tx.put_node(node))  # type: ignore[misc]
        engine = create_async_engine(parse_address(url))
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE sites SET labels = :it WHERE name = 'bad'"), {"it": damaged})
            await connection.execute(
                text("UPDATE nodes SET labels = :it, tunable = :it WHERE site = 'bad'"), {"it": damaged}
            )
        await engine.dispose()
        async with store.read() as reader:
            for selector, found in (("region=eu", ["good"]), ("a.b/c=x", ["good"]), ("!region", ["other"])):
                where = SiteFilter(selector=parse_selector(selector))
                assert [site.name for site in (await reader.page(SITES, where, WHOLE)).items] == found
            for words, found in (("label:region=e*", ["good"]), ("label:a.b/c", ["good"])):
                where_nodes = NodeFilter(parts=parse_filter(words, WORDS))
                assert [node.site for node in (await reader.page(NODES, where_nodes, WHOLE)).items] == found
