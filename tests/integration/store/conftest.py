"""Fresh databases of both kinds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer


@pytest.fixture
async def postgres_url(postgres: PostgresServer) -> AsyncIterator[str]:
    name = await postgres.create_database()
    yield postgres.url(name)
    await postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    name = await postgres.create_database()
    yield postgres.url(name)
    await postgres.drop_database(name)
