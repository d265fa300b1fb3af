"""Every test of this folder runs on SQLite and on a real PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.ports import Store
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a database that nobody has used yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name = await server.create_database()
    yield server.url(name)
    await server.drop_database(name)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url) as opened:
        yield opened
