"""F7: a disk is full when an order, a database or a log has to be written. What runs stays, the reason is said by
code, no role ends of it, and the next revision is installed once there is space again."""

import contextlib
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import filled, small_disk
from tests.support.hosts import SITE_PORT, UNVERIFIED, HostFleet, join_arguments

SITE_MEGABYTES = 40
"""Of a site: its database, and its copies of the repository."""


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


@contextlib.contextmanager
def moved_to_small_disk(fleet: HostFleet, name: str, log: Path) -> Iterator[Path]:
    """A role goes on with all its data on a disk of its own, and logs to `log`; afterwards as before."""
    data = fleet.data(name)
    aside = data.with_name(f"{data.name}-aside")
    fleet.roles[name].kill()
    data.rename(aside)
    try:
        with small_disk(data, SITE_MEGABYTES):
            shutil.copytree(aside, data, dirs_exist_ok=True)
            try:
                fleet.again(name, log=log)
                yield data
            finally:
                fleet.roles[name].kill()
                shutil.rmtree(aside)
                shutil.copytree(data, aside)
    finally:
        data.rmdir()
        aside.rename(data)
        fleet.again(name)


@contextlib.contextmanager
def logging_to(fleet: HostFleet, name: str, log: Path) -> Iterator[None]:
    fleet.roles[name].kill()
    fleet.again(name, log=log)
    try:
        yield
    finally:
        fleet.roles[name].kill()
        fleet.again(name)


def test_a_full_disk_under_a_site_and_under_the_logs_ends_no_role(fleet: HostFleet, tmp_path: Path) -> None:
    """The site can write neither its database nor its log; the node has its own disk, and only its log is full."""
    key, repaired = fleet.deploy("witness"), fleet.deploy("repaired")
    fleet.settled(key)
    fleet.settled(repaired)
    before = fleet.podman.ids(key)
    with (
        small_disk(tmp_path / "logs") as logs,
        logging_to(fleet, "n1", logs / "n1.log"),
        moved_to_small_disk(fleet, "north", logs / "north.log") as data,
    ):
        with filled(data), filled(logs):
            fleet.deploy("witness", mood="wanted")
            fleet.podman.run("rm", "--force", "--time", "0", *fleet.podman.ids(repaired))
            fleet.wait(lambda: fleet.podman.ids(repaired), what="the node to repair alone")
            fleet.wait(lambda: "is full; nothing was written" in _readiness(fleet), what="the site to say so")
            assert fleet.podman.ids(key) == before, "an order that cannot be written down is not given"
            assert all(role.popen.poll() is None for role in fleet.roles.values())
        fleet.wait(lambda: fleet.podman.ids(key) not in (set(), before), what="the update", seconds=60)
        fleet.settled(key, seconds=60)
        for name in ("n1", "north"):
            assert "log write failed" in (logs / f"{name}.log").read_text()


def _readiness(fleet: HostFleet) -> str:
    """What the site says of itself."""

    def ask() -> str:
        address = f"https://{fleet.hosts['north'].address}:{SITE_PORT}/readyz"
        try:
            with urllib.request.urlopen(address, timeout=60, context=UNVERIFIED) as answer:
                return str(answer.read(), "utf-8")
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read(), "utf-8")

    return fleet.inside["north"].run(ask)
