"""Draining a node of a real fleet: three processes and more, the null runtime, the command line."""

from pathlib import Path

from tests.support.fleet import Fleet
from tests.support.git import bare_repository
from tests.support.processes import Machine
from tests.support.running_central import write_app


def states(host: Machine) -> dict[str, str]:
    (found,) = host.json("deployments", "list")["deployments"]
    return {item["node_id"]: item["state"] for item in found["instances"] if item["state"] != "DELETED"}


def test_a_drain_moves_what_runs_once_to_another_node(host: Machine, tmp_path: Path) -> None:
    fleet = Fleet(host, str(bare_repository(tmp_path / "deployments.git")))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    write_app(tmp_path / "registry")
    host.homeport("apps", "add", str(tmp_path / "registry"))
    host.homeport("deploy", "hello", "--site", "north", "--place", "one")
    assert states(host) == {"n1": "INSTALLED"}
    fleet.node("n2", "north")
    host.wait_for(lambda: len(host.json("nodes", "list")["nodes"]) == 2)
    assert states(host) == {"n1": "INSTALLED"}, "what runs stays where it is"

    told = host.homeport("nodes", "drain", "n1", "--reason", "new disk", "--wait")
    assert "node n1 is empty" in told
    host.wait_for(lambda: states(host) == {"n2": "INSTALLED"})
    why = host.homeport("why", "hello")
    assert "n1 not chosen: is drained: new disk" in why
    assert "n2 is chosen" in why
    lines = host.homeport("nodes", "list").splitlines()
    assert "drained" in next(line for line in lines if line.startswith("n1"))

    fleet.roles["north"].kill()
    fleet.again("north")
    fleet.roles["n1"].kill()
    fleet.again("n1")
    site = fleet.roles["north"].url
    host.wait_for(lambda: all(node["liveness"] == "live" for node in host.json("nodes", "list", url=site)["nodes"]))
    assert [node["drain"] for node in host.json("nodes", "list", url=site)["nodes"]] == ["new disk", None]
    host.wait_for(lambda: states(host) == {"n2": "INSTALLED"})
    assert host.command("nodes", "drain", "n1").returncode == 5
