"""Fixtures that every kind of test shares."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import PostgresServer, running_postgres

# How long an example takes says more about the machine than about the code.
settings.register_profile("homeport", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("homeport")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; each makes its own database in it."""
    with running_postgres() as server:
        yield server
