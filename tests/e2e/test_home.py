"""The home profile: one command, an app from Git to a healthy container and back."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.podman import container_ids, containers, podman
from tests.support.processes import STOP_SECONDS_MAX, Machine, start_up


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return str(answer.read().decode())


def test_a_newcomer_gets_from_nothing_to_a_container_that_answers(
    host: Machine, apps: Path, node_prefix: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(forks.VARIABLE, forks.NONE)  # The installed command and nothing of ours.
    up = start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    shown = host.homeport(
        "deploy", "hello@1.0.0", "--site", "home", "--set", f"port={port}", "--set", "greeting=Ahoy there", "--wait"
    )
    assert "INSTALLED" in shown
    assert "Ahoy there" in fetch(port)

    (deployment,) = host.json("deployments", "list")["deployments"]
    assert (deployment["state"], deployment["site"], deployment["app_version"]) == ("INSTALLED", "home", "1.0.0")
    (container,) = containers(deployment=deployment["id"])
    environment = json.loads(podman("inspect", container["Id"]))[0]["Config"]["Env"]
    assert "GREETING=Ahoy there" in environment

    before = container_ids(deployment=deployment["id"])
    assert up.stop() <= STOP_SECONDS_MAX
    assert container_ids(deployment=deployment["id"]) == before, "stopping Homeport stops no workload"
    start_up(host, node=f"{node_prefix}-laptop")
    (again,) = host.json("deployments", "list")["deployments"]
    assert (again["id"], again["state"]) == (deployment["id"], "INSTALLED")
    assert container_ids(deployment=deployment["id"]) == before
    assert host.json("apps", "list")["apps"]

    assert "DELETED" in host.homeport("deployments", "delete", "hello@home", "--wait")
    assert containers(deployment=deployment["id"]) == []
    assert host.json("deployments", "list")["deployments"] == []
    (archived,) = host.json("deployments", "list", "--archived")["deployments"]
    assert (archived["id"], archived["state"]) == (deployment["id"], "DELETED")


def test_an_update_replaces_only_what_changed_and_the_plan_said_so(
    host: Machine, apps: Path, node_prefix: str, port: int
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "hello@1.1.0", "--site", "home", "--set", f"port={port}", "--wait")
    (deployment,) = host.json("deployments", "list")["deployments"]
    by_component = {
        item["Labels"]["homeport.component"]: item["Id"] for item in containers(deployment=deployment["id"])
    }
    assert set(by_component) == {"web", "cache"}

    change = ("deploy", "hello@1.1.0", "--site", "home", "--set", f"port={port}", "--set", "greeting=Moin")
    planned = host.command(*change, "--plan")
    assert planned.returncode == 6
    assert "greeting" in planned.stdout
    assert "keep" in planned.stdout
    assert "replace" in planned.stdout
    assert container_ids(deployment=deployment["id"]) == sorted(by_component.values()), "a plan changes nothing"

    host.homeport(*change, "--wait")
    assert "Moin" in fetch(port)
    after = {item["Labels"]["homeport.component"]: item["Id"] for item in containers(deployment=deployment["id"])}
    assert after["cache"] == by_component["cache"]
    assert after["web"] != by_component["web"]
    assert host.command(*change, "--plan").returncode == 0

    states = [line["after"] for line in host.json("deployments", "history", "hello@home")["history"]]
    assert states == ["INSTALLING", "INSTALLED", "UPDATING", "INSTALLED"]
    host.homeport("deployments", "delete", "hello@home", "--wait")


def test_an_app_that_never_turns_healthy_fails_and_says_why(host: Machine, apps: Path, node_prefix: str) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    done = host.command("deploy", "broken", "--site", "home", "--retries", "1", "--wait")
    assert "attempt 2 of 2" in done.stdout
    assert done.returncode == 1
    assert "HEALTH_CHECK_FAILED" in done.stdout + done.stderr
    (deployment,) = host.json("deployments", "list")["deployments"]
    assert deployment["state"] == "FAILED"
    assert deployment["instances"][0]["failure"]["code"] == "HEALTH_CHECK_FAILED"
    host.homeport("deployments", "delete", "broken@home", "--wait")
    assert containers(deployment=deployment["id"]) == []
