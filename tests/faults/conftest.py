"""One fleet on hosts of its own for all the faults: making it costs more than most of them. Each test gets it whole
and empty: links healed, roles running, nothing deployed.

`make test` runs the short form of each fault; HOMEPORT_FAULTS=long (`make faults`) runs them at full length.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.bad_releases import write_apps
from tests.support.engines import podman
from tests.support.hosts import HostFleet, Stock, host_fleet, stocked

IS_LONG = os.environ.get("HOMEPORT_FAULTS") == "long"
BIG_BYTES = (200 if IS_LONG else 20) * 2**20
HEAVY_BYTES = (15 if IS_LONG else 10) * 2**20
"""Of a component's archive; 16 MiB are packed and no more."""
APPS = Path(__file__).parent.parent / "e2e" / "apps"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if "faults" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="making network namespaces needs root"))


def push_big_image(registry: str) -> None:
    """Of bytes that no compression makes smaller."""
    image = f"{registry}/demo/big:1.0.0"
    with tempfile.TemporaryDirectory(prefix="homeport-image-") as folder:
        shutil.copy("/bin/busybox", folder)
        with (Path(folder) / "ballast").open("wb") as file:
            for _ in range(BIG_BYTES // 2**20):
                file.write(os.urandom(2**20))
        (Path(folder) / "Containerfile").write_text(
            "FROM scratch\nCOPY busybox /bin/busybox\nCOPY ballast /ballast\n"
            'ENTRYPOINT ["/bin/busybox", "sh", "-c", "trap exit TERM; while :; do /bin/busybox sleep 1; done"]\n'
        )
        podman("build", "--quiet", "--layers=false", "--force-rm", "--tag", image, folder)
        try:
            podman("push", "--quiet", "--tls-verify=false", image)
        finally:
            podman("rmi", "--force", image)


def write_heavy_app(folder: Path) -> None:
    """The quiet app with ballast in its archive."""
    package = folder / "test" / "heavy" / "1.0.0"
    shutil.copytree(APPS / "test" / "quiet" / "1.0.0", package)
    description = package / "margo.yaml"
    description.write_text(description.read_text().replace("quiet", "heavy").replace("Quiet", "Heavy"))
    (package / "components" / "main" / "ballast").write_bytes(os.urandom(HEAVY_BYTES))


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    folder = tmp_path_factory.mktemp("stock")
    made = write_apps(folder / "made")
    write_heavy_app(made)
    return stocked((APPS, Path(__file__).parent / "apps", made), folder, more=push_big_image)


@pytest.fixture(scope="session")
def whole_fleet(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostFleet]:
    with host_fleet(tmp_path_factory.mktemp("fleet"), stock) as fleet:
        yield fleet


@pytest.fixture
def fleet(whole_fleet: HostFleet) -> Iterator[HostFleet]:
    whole_fleet.make_whole()
    yield whole_fleet
    whole_fleet.make_whole()
    whole_fleet.clear()
