"""F7: a node's disk is full when an order has to be written down. What runs stays, the reason is said by code, and
the next revision is installed once there is space again."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hosts import HostFleet, join_arguments

SMALL_MEGABYTES = 8


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own for one folder; also unmounted when somebody still uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_MEGABYTES}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing is free meanwhile."""
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        yield
    finally:
        ballast.unlink()


@pytest.fixture
def small(fleet: HostFleet) -> Iterator[str]:
    """A second node on a small disk, beside n1 and on the same Podman; its name."""
    name = f"small-{len(fleet.machines)}"
    fleet.machines[name] = fleet.machines["n1"]
    with small_disk(fleet.data(name)):
        try:
            fleet.start(name, *join_arguments(fleet, name), "--runtime", "podman", "--http", "127.0.0.1:22520")
            fleet.wait(lambda: any(each["id"] == name for each in fleet.ask("GET", "/nodes")["nodes"]))
            yield name
            fleet.clear()
        finally:
            fleet.roles.pop(name).kill()
            fleet.commands.pop(name)
            fleet.ask("DELETE", f"/nodes/{name}")


def deploy(fleet: HostFleet, node: str, version: str, **parameters: str) -> str:
    where = [{"site_id": "north", "host_ids": [node]}]
    body = {"app_name": "quiet", "version": version, "name": "witness", "sites": where, "parameters": parameters}
    return str(fleet.ask("POST", "/deployments", body)["deployment_ids"][0])


def codes(fleet: HostFleet, key: str) -> set[str]:
    return {line["failure"]["code"] for line in fleet.history(key) if line["failure"]}


def test_a_full_disk_is_said_and_touches_nothing(fleet: HostFleet, small: str) -> None:
    key = deploy(fleet, small, "1.0.0")
    fleet.settled(key)
    before = fleet.podman.ids(key)
    with filled(fleet.data(small)):
        deploy(fleet, small, "1.1.0")
        fleet.wait(lambda: "DISK_FULL" in codes(fleet, key), what="DISK_FULL at central", seconds=60)
        assert fleet.podman.ids(key) == before
        assert fleet.roles[small].popen.poll() is None
    # Whether the site tries again or goes back to what never went away is its policy; a new revision always counts.
    deploy(fleet, small, "1.1.0", mood="freed")
    fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update", seconds=90)
    fleet.settled(key, seconds=60)
