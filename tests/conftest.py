"""Fixtures that every kind of test shares."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import PostgresServer, running_postgres

# How long an example takes says more about the machine than about the code.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: whoever changes something else must not be the one who meets a new one. To look for
# those:  pytest tests/property --hypothesis-profile search
settings.register_profile("homeport", settings.get_profile("search"), derandomize=True)
settings.load_profile("homeport")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; each makes its own database in it."""
    with running_postgres() as server:
        yield server
