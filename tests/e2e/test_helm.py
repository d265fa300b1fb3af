"""A helm chart on a machine without Kubernetes: installed, changed, restored and deleted through `homeport up`."""

import urllib.request
from pathlib import Path

from tests.support.podman import container_ids, containers, podman
from tests.support.processes import Machine, start_up


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return str(answer.read().decode())


def test_a_chart_is_installed_changed_restored_and_deleted(
    host: Machine, apps: Path, node_prefix: str, port: int
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    deploy = ("deploy", "greeter", "--site", "home", "--set", f"port={port}")
    assert "INSTALLED" in host.homeport(*deploy, "--set", "greeting=Ahoy, there", "--wait")
    assert fetch(port) == "Ahoy, there\n"
    (deployment,) = host.json("deployments", "list")["deployments"]
    before = container_ids(deployment=deployment["id"])
    assert len(before) == 1

    planned = host.command(*deploy, "--set", "greeting=Moin", "--plan")
    assert planned.returncode == 6
    assert "web.greeting" in planned.stdout
    assert container_ids(deployment=deployment["id"]) == before
    host.homeport(*deploy, "--set", "greeting=Moin", "--wait")
    assert fetch(port) == "Moin\n"
    (container,) = containers(deployment=deployment["id"])
    assert [container["Id"]] != before

    podman("kill", container["Id"])
    host.wait_for(lambda: container_ids_running(deployment["id"]) == [container["Id"]])

    assert "DELETED" in host.homeport("deployments", "delete", "greeter@home", "--wait")
    assert containers(deployment=deployment["id"]) == []
    mark = deployment["id"].replace("-", "")[:12]
    for what in ("pod", "network", "volume"):
        assert mark not in podman(what, "ls"), f"a {what} was left behind"


def container_ids_running(deployment_id: str) -> list[str]:
    return [item["Id"] for item in containers(deployment=deployment_id) if item["State"] == "running"]


def test_kinds_that_need_kubernetes_are_named_by_the_plan_and_by_the_failure(
    host: Machine, apps: Path, node_prefix: str
) -> None:
    start_up(host, node=f"{node_prefix}-laptop")
    host.homeport("apps", "add", str(apps))
    planned = host.command("deploy", "sets", "--site", "home", "--plan")
    assert "main would fail with UNSUPPORTED_KIND: The chart holds StatefulSet database" in planned.stdout
    fixed = host.command("deploy", "sets", "--site", "home", "--set", "sets=false", "--plan")
    assert "UNSUPPORTED_KIND" not in fixed.stdout
    assert host.json("deployments", "list")["deployments"] == [], "a plan changes nothing"

    failed = host.command("deploy", "sets", "--site", "home", "--wait")
    assert failed.returncode == 1
    assert "UNSUPPORTED_KIND" in failed.stdout + failed.stderr
    assert "StatefulSet database" in failed.stdout + failed.stderr
    host.homeport("deploy", "sets", "--site", "home", "--set", "sets=false", "--wait")
    host.homeport("deployments", "delete", "sets@home", "--wait")
