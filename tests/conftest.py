"""Fixtures that every kind of test shares."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import PostgresServer, running_postgres
from tests.support.stage import shared_stage

# How long an example takes says more about the machine than about the code.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The same examples each time: whoever changes something else must not be the one who meets a new one. To look for
# those:  pytest tests/property --hypothesis-profile search
settings.register_profile("homeport", settings.get_profile("search"), derandomize=True)
# Some that no run has seen, beside the fixed ones; `scripts/test` gives them a seed, and a failure prints it.
settings.register_profile("fresh", settings.get_profile("search"), max_examples=25, print_blob=True, database=None)
settings.load_profile("homeport")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests; each makes its own database in it."""
    stage = shared_stage()
    if stage is not None:
        yield stage.postgres
        return
    with running_postgres() as server:
        yield server
