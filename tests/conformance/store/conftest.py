"""Every test of this folder runs on SQLite and on a real PostgreSQL; those that need no address, also in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.ports import Store
from tests.simulation.store import Disk, MemoryStore
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a database that nobody has used yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    async with _database(server, await server.create_database()) as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore(Disk())
        return
    if request.param == "sqlite":
        async with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
            yield opened
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    async with _database(server, await server.copy_database()) as address, open_store(address) as opened:
        yield opened


@asynccontextmanager
async def _database(server: PostgresServer, name: str) -> AsyncIterator[str]:
    try:
        yield server.url(name)
    finally:
        await server.drop_database(name)
