"""Nodes come and go, as their site and central see it."""

from pathlib import Path

import psutil

from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine, start_up


def test_a_removed_node_leaves_at_once_and_stays_away_until_started_again(host: Machine, tmp_path: Path) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    host.homeport("nodes", "remove", "n1")
    assert host.json("nodes", "list")["nodes"] == []
    assert host.json("nodes", "list", url=fleet.roles["north"].url)["nodes"] == []
    assert host.command("nodes", "remove", "n1").returncode == 3
    fleet.roles["n1"].kill()
    fleet.again("n1")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])


def test_a_node_cannot_be_removed_while_its_site_is_away(host: Machine, tmp_path: Path) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    fleet.roles["north"].kill()
    host.wait_for(lambda: "not connected" in host.command("nodes", "remove", "n1").stderr)
    assert host.json("nodes", "list")["nodes"]


def test_capabilities_are_what_the_machine_says(host: Machine) -> None:
    start_up(host, runtime="podman", node="laptop")
    (node,) = host.json("nodes", "list")["nodes"]
    able = node["capabilities"]
    assert able["cpu_cores"] == psutil.cpu_count()
    assert able["memory_bytes"] == psutil.virtual_memory().total
    assert able["disk_bytes"] == psutil.disk_usage(str(host.folder)).total
    assert (able["os"], able["architecture"], able["engine"]) == ("linux", "amd64", "podman")
    assert able["profile_types"] == ["compose", "custom", "helm"]


def test_one_process_shows_the_metrics_of_all_its_roles(host: Machine) -> None:
    up = start_up(host, runtime="null", node="laptop")
    with up.open("/metrics") as answer:
        text = answer.read().decode()
    assert 'homeport_info{role="central"' in text
    assert "homeport_node_connected 1.0" in text
