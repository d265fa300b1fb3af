"""F2: a machine loses power: a node whose uplink is gone when it comes back, and a home with everything on it."""

import shutil
from contextlib import ExitStack
from pathlib import Path

from tests.support.boot import start_at_boot
from tests.support.hosts import HostFleet, OwnPodman
from tests.support.namespaces import lan
from tests.support.processes import machine
from tests.support.waiting import wait_for

COMPOSE = """
services:
  web:
    image: localhost/kept:1
    volumes: ["data:/data"]
  worker:
    image: localhost/kept:1
volumes: {data: {}}
"""
CONTAINERFILE = """
FROM scratch
COPY busybox /bin/busybox
ENTRYPOINT ["/bin/busybox", "sh", "-c", "trap exit TERM; while :; do /bin/busybox sleep 1; done"]
"""


def test_after_a_power_cut_without_uplink_the_last_good_workloads_run_again(fleet: HostFleet) -> None:
    key = fleet.deploy("power")
    fleet.settled(key)
    unit = fleet.machines["n1"].homeport("service", "install", "--system", "--print", *fleet.commands["n1"])
    fleet.roles["n1"].kill()
    fleet.podman.power_cut()
    fleet.hosts["n1"].cut()
    assert fleet.podman.ids(key) == set()
    fleet.roles["n1"] = start_at_boot(fleet.machines["n1"], unit, "n1")
    fleet.wait(lambda: len(fleet.podman.ids(key)) == 1, seconds=10, what="the workload without a network")
    (before,) = fleet.podman.ids(key)
    fleet.hosts["n1"].heal()
    fleet.wait(lambda: fleet.ask("GET", "/nodes")["nodes"][0]["liveness"] == "live")
    fleet.settled(key)
    assert fleet.podman.ids(key) == {before}, "reconnection restarts nothing"


def test_a_home_that_is_a_service_has_its_apps_and_their_data_again_after_a_power_cut(tmp_path: Path) -> None:
    """`homeport service install up` on a machine of its own, with the ports that a newcomer has."""
    with ExitStack() as stack:
        host = stack.enter_context(lan(["home"]))["home"]
        podman = OwnPodman(host)
        stack.callback(podman.close)
        build_image(podman, tmp_path / "image")
        home = stack.enter_context(machine(tmp_path / "home"))
        home.prefix, home.environment, home.url = host.prefix, podman.environment, "http://127.0.0.1:8080"
        unit = home.homeport("service", "install", "--system", "--print", "up", "--node", "laptop")
        role = start_at_boot(home, unit, "up")
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "compose.yaml").write_text(COMPOSE)
        assert "INSTALLED" in home.homeport("deploy", str(tmp_path / "shop"))
        write = ("/bin/busybox", "sh", "-c", "echo precious > /data/file; /bin/busybox sync")
        podman.run("exec", container_of(podman, "web"), *write)

        role.kill()
        podman.power_cut()
        assert podman.ids() == set()
        start_at_boot(home, unit, "up")
        wait_for(lambda: len(podman.ids()) == 2, what="both services to run again")
        assert podman.run("exec", container_of(podman, "web"), "/bin/busybox", "cat", "/data/file") == "precious\n"
        assert "All is well." in home.homeport("status")
        assert "started again" in home.homeport("deployments", "history", "shop@home")
        assert "unchanged" in home.homeport("deploy", str(tmp_path / "shop"))


def build_image(podman: OwnPodman, folder: Path) -> None:
    folder.mkdir()
    shutil.copy("/bin/busybox", folder)
    (folder / "Containerfile").write_text(CONTAINERFILE)
    podman.run("build", "--quiet", "--layers=false", "--force-rm", "--tag", "localhost/kept:1", str(folder))


def container_of(podman: OwnPodman, service: str) -> str:
    (found,) = [each["Id"] for each in podman.containers() if each["Labels"]["com.docker.compose.service"] == service]
    return str(found)
