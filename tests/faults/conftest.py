"""One fleet on hosts of its own for all the faults: making it costs more than most of them. Each test gets it whole
and empty: links healed, roles running, nothing deployed.

`make test` runs the short form of each fault; HOMEPORT_FAULTS=long (`make faults`) runs them at full length.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import HostFleet, Stock, host_fleet, stocked

IS_LONG = os.environ.get("HOMEPORT_FAULTS") == "long"
APPS = Path(__file__).parent.parent / "e2e" / "apps"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if "faults" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="making network namespaces needs root"))


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return stocked((APPS, Path(__file__).parent / "apps"), tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="session")
def whole_fleet(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostFleet]:
    with host_fleet(tmp_path_factory.mktemp("fleet"), stock) as fleet:
        yield fleet


@pytest.fixture
def fleet(whole_fleet: HostFleet) -> Iterator[HostFleet]:
    whole_fleet.make_whole()
    yield whole_fleet
    whole_fleet.make_whole()
    for each in whole_fleet.ask("GET", "/deployments")["deployments"]:
        whole_fleet.delete(each["id"])
    whole_fleet.wait(
        lambda: not whole_fleet.ask("GET", "/deployments")["deployments"] and not whole_fleet.podman.containers(),
        what="everything to be deleted",
    )
