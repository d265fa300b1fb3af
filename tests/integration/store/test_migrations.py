"""Migrations replayed equal the schema, and a database of another time is met with a sentence."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from homeport.adapters.store.databases.engine import parse_address
from homeport.adapters.store.databases.migrate import FOLDER, upgrade
from homeport.adapters.store.open import open_store
from homeport.adapters.store.schema import REVISION, metadata
from homeport.core.model.event import Subject
from homeport.errors import Refused
from homeport.fleet.site.instance_values import load_secrets
from homeport.fleet.site.traces import NO_NODE, OpenOrder, load_trace
from homeport.vocabulary import DeploymentId, NodeId
from tests.conformance.store import records

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def engine_at(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(parse_address(url))
    try:
        yield engine
    finally:
        await engine.dispose()


def differences(connection: Connection) -> Sequence[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, metadata))


def shape(connection: Connection) -> dict[str, Any]:
    """All that the database itself says of its tables, for what Alembic does not compare: keys, names, collations."""
    inspector = inspect(connection)
    return {
        table: {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)
            ],
            "key": inspector.get_pk_constraint(table),
            "foreign": inspector.get_foreign_keys(table),
            "unique": inspector.get_unique_constraints(table),
            "indices": sorted(inspector.get_indexes(table), key=lambda index: str(index["name"])),
        }
        for table in sorted(inspector.get_table_names())
    }


async def test_migrations_replayed_equal_the_schema(url: str) -> None:
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.run_sync(upgrade)
        assert await connection.run_sync(differences) == []
        migrated = await connection.run_sync(shape)
        await connection.run_sync(metadata.drop_all)
        await connection.execute(text("DROP TABLE alembic_version"))
    async with open_store(url):
        pass
    async with engine_at(url) as engine, engine.connect() as connection:
        assert await connection.run_sync(differences) == []
        assert await connection.run_sync(shape) == migrated


async def test_a_migrated_database_is_opened_as_it_is(url: str) -> None:
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.run_sync(upgrade)
    async with open_store(url) as store:
        await store.write(lambda tx: tx.set_value("a", "b"))


async def test_the_schema_names_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


async def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    async with open_store(url):
        pass
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    async with engine_at(url) as engine, engine.connect() as connection:
        before = await connection.run_sync(shape)
    with pytest.raises(Refused, match="written by a newer version of Homeport"):
        async with open_store(url):
            pass
    async with engine_at(url) as engine, engine.connect() as connection:
        assert await connection.run_sync(shape) == before, "nothing was changed"
        assert await connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


async def test_a_database_that_somebody_else_uses_is_refused_and_left_alone(url: str) -> None:
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.execute(text("CREATE TABLE events (mine INTEGER)"))
    with pytest.raises(Refused, match='a table "events" that Homeport did not make'):
        async with open_store(url):
            pass
    async with engine_at(url) as engine, engine.connect() as connection:
        assert list(await connection.run_sync(shape)) == ["events"]


async def test_alembic_is_not_loaded_for_a_new_or_current_database(url: str) -> None:
    program = (
        "import anyio, sys\n"
        "from homeport.adapters.store.open import open_store\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1]): pass\n"
        "anyio.run(main); anyio.run(main)\n"
        "assert 'alembic' not in sys.modules\n"
    )
    with anyio.fail_after(60):
        await anyio.run_process([sys.executable, "-c", program, url], stderr=None)


def upgrade_to(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def test_events_of_an_older_database_get_their_subjects_and_pins_stay(url: str) -> None:
    insert = text(
        "INSERT INTO events (id, kind, at, message, site, deployment_id, node_id, data)"
        " VALUES (:id, :kind, '2030-01-01 00:00:00', '', :site, :deployment, :node, :data)"
    )
    a_pin = text("INSERT INTO pins VALUES ('d', 'r', :content, 'o', 'why', 'ada', '2030-01-01 00:00:00')")
    rows = [
        (1, "app.added", None, None, None, '{"app_id":"a"}'),
        (2, "instance.state", "home", "d", "n", "{}"),
        (3, "node.left", "home", None, "n", "{}"),
        (4, "site.problem", "home", "d", None, "{}"),
        (5, "rollout.state", None, None, None, '{"rollout_id":"r"}'),
    ]
    names = ("id", "kind", "site", "deployment", "node", "data")
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.run_sync(upgrade_to, "0003")
        await connection.execute(insert, [dict(zip(names, row, strict=True)) for row in rows])
        await connection.execute(a_pin, {"content": b"kind: x"})
    async with open_store(url) as store:
        await store.write(lambda tx: tx.append_events([records.event()]))
        async with store.read() as reader:
            found = await reader.events(after=0, limit=10)
            assert await reader.events(after=0, limit=10, subject=Subject("deployment", "d")) == found[1:2]
            assert [(pin.content, pin.at) for pin in await reader.pins()] == [
                (b"kind: x", datetime(2030, 1, 1, tzinfo=UTC))
            ]
    subjects = [str(event.event.subject) for event in found[:5]]
    assert subjects == ["app/a", "deployment/d", "node/n", "site/home", "rollout/r"]
    assert found[-1].id == 6, "ids go on behind those that are there"


SPAN = f"00-{'a' * 32}-{'b' * 16}-01"
ORDER = [7, "apply", "order apply", SPAN, SPAN, "2030-01-01T00:00:00+00:00", "not there"]


async def test_an_older_site_keeps_what_it_has_noted_of_its_instances(url: str) -> None:
    """Three texts became rows. One that cannot be read costs itself alone."""
    values = {
        "secrets_given": json.dumps([["d", "n", {"password": 3}], ["d", "m", {}]]),
        "seconds_spent": json.dumps([["d", "n", 12.5]]),
        "traces": json.dumps({"deployments": {"d": SPAN}, "orders": [["d", "n", *ORDER]]}),
        "generation": "41",
    }
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.run_sync(upgrade_to, "0013")
        insert = text("INSERT INTO role_values (key, value) VALUES (:key, :value)")
        await connection.execute(insert, [{"key": key, "value": value} for key, value in values.items()])
    async with open_store(url) as store, store.read() as reader:
        assert await reader.values(list(values)) == {"generation": "41"}
        assert await reader.instance_values("seconds_spent", float) == {("d", "n"): 12.5}
        given = await reader.instance_values("secrets_given", load_secrets)
        assert given == {("d", "n"): {"password": 3}, ("d", "m"): {}}
        traces = await reader.instance_values("traces", load_trace)
        assert str(traces[DeploymentId("d"), NO_NODE]) == SPAN
        order = traces[DeploymentId("d"), NodeId("n")]
        assert isinstance(order, OpenOrder)
        assert (order.generation, order.reason, str(order.parent)) == (7, "not there", SPAN)


@pytest.mark.parametrize("text_of", ["", "nonsense", "[1, 2]", '{"deployments": 3}', '[["d"]]', "[" * 5_000])
async def test_an_older_site_opens_whatever_its_notes_are(url: str, text_of: str) -> None:
    async with engine_at(url) as engine, engine.begin() as connection:
        await connection.run_sync(upgrade_to, "0013")
        insert = text("INSERT INTO role_values (key, value) VALUES (:key, :value)")
        rows = [{"key": key, "value": text_of} for key in ("secrets_given", "seconds_spent", "traces")]
        await connection.execute(insert, rows)
    async with open_store(url) as store, store.read() as reader:
        for name in ("secrets_given", "seconds_spent", "traces"):
            assert await reader.instance_values(name, str) == {}
