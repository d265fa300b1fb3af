"""Migrations replayed equal the schema, and a database of another time is met with a sentence."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from homeport.adapters.store.engine import parse_address
from homeport.adapters.store.migrate import FOLDER, upgrade
from homeport.adapters.store.open import open_store
from homeport.adapters.store.schema import REVISION, metadata
from homeport.errors import Refused

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
    with pytest.raises(Refused, match="written by another version of Homeport"):
        async with open_store(url):
            pass


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
