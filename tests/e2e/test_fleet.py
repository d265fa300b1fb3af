"""Central, two sites and three nodes as separate processes on one machine."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.deployment_files import deployment_file
from tests.support.fleet import Fleet, two_centrals
from tests.support.git import Person, bare_repository, git
from tests.support.git_http import serve_git
from tests.support.podman import container_ids, containers
from tests.support.postgres import PostgresServer, running_postgres
from tests.support.processes import STOP_SECONDS_MAX, Machine
from tests.support.stage import shared_stage


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "deployments.git")


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    stage = shared_stage()
    with contextlib.nullcontext(stage.postgres) if stage else running_postgres() as server:
        yield server


@pytest.fixture(params=["one central", "two centrals"])
def fleet(request: pytest.FixtureRequest, host: Machine, remote: Path) -> Iterator[Fleet]:
    """Central alone with SQLite, or two of them on PostgreSQL behind a balancer: nobody should see a difference."""
    if request.param == "one central":
        yield Fleet(host, str(remote))
        return
    postgres: PostgresServer = request.getfixturevalue("postgres")
    database = anyio.run(postgres.create_database)
    try:
        with two_centrals(host, str(remote), postgres.url(database)) as fleet:
            yield fleet
            host.close()
    finally:
        anyio.run(postgres.drop_database, database)


def state_of(host: Machine, name: str, site: str, *, url: str | None = None) -> str | None:
    for item in host.json("deployments", "list", url=url)["deployments"]:
        if (item["name"], item["site"]) == (name, site):
            return str(item["state"])
    return None


def test_one_site_gets_it_and_the_other_is_untouched(
    host: Machine, apps: Path, remote: Path, node_prefix: str
) -> None:
    fleet = Fleet(host, str(remote))
    fleet.central()
    fleet.site("north")
    fleet.site("south")
    nodes = [f"{node_prefix}-{name}" for name in ("n1", "n2", "s1")]
    for node, site in zip(nodes, ("north", "north", "south"), strict=True):
        fleet.node(node, site, runtime="podman")
    host.wait_for(lambda: len(host.json("nodes", "list")["nodes"]) == 3)
    assert {site["name"] for site in host.json("sites", "list")["sites"]} == {"north", "south"}

    host.homeport("apps", "add", str(apps))
    south_log = fleet.roles["south"].log.read_text()
    host.homeport("deploy", "quiet@1.0.0", "--site", "north", "--wait")
    (deployment,) = host.json("deployments", "list")["deployments"]
    assert {item["node_id"] for item in deployment["instances"]} == set(nodes[:2])
    assert [len(containers(node=node)) for node in nodes] == [1, 1, 0]
    assert "decided" not in fleet.roles["south"].log.read_text().removeprefix(south_log)
    assert state_of(host, "quiet", "north", url=fleet.roles["north"].url) == "INSTALLED", "the site knows it too"
    assert host.json("deployments", "list", url=fleet.roles["south"].url)["deployments"] == []

    ids = {node: container_ids(node=node) for node in nodes}
    for role in ("central", "north", "south", *nodes):
        assert fleet.roles[role].stop() <= STOP_SECONDS_MAX
        fleet.again(role)
    host.wait_for(lambda: all(node["liveness"] == "live" for node in host.json("nodes", "list")["nodes"]))
    assert {node: container_ids(node=node) for node in nodes} == ids, "no restart of a role restarts a container"
    for role in ("central", "north", nodes[0]):
        fleet.roles[role].kill()
        fleet.again(role)
    time.sleep(1)
    assert {node: container_ids(node=node) for node in nodes} == ids, "nor does pulling the plug"
    assert state_of(host, "quiet", "north") == "INSTALLED"

    host.homeport("deployments", "delete", "quiet@north", "--wait")
    assert [len(containers(node=node)) for node in nodes] == [0, 0, 0]


@pytest.mark.parametrize("transport", ["file", "http"])
def test_a_plain_git_push_installs_and_removes(
    host: Machine, apps: Path, remote: Path, node_prefix: str, tmp_path: Path, transport: str, registry: Any
) -> None:
    with serve_git(remote.parent) as server:
        url = server.url(remote.name) if transport == "http" else str(remote)
        fleet = Fleet(host, url)
        fleet.central("--poll", "0.5")
        fleet.site("north", "--poll", "0.5")
        fleet.node(f"{node_prefix}-n1", "north", runtime="podman")
        person = Person(url, tmp_path / "person")
        path, text = deployment_file(name="quiet", site="north")
        text = text.replace("oci://127.0.0.1:5005/demo/quiet", f"oci://{registry.host}/test/quiet")
        person.write(path, text)
        person.push("install by hand")
        host.wait_for(lambda: state_of(host, "quiet", "north") == "INSTALLED")
        (deployment,) = host.json("deployments", "list")["deployments"]
        assert deployment["created_by"] == "Pat Person"
        assert len(containers(deployment=deployment["id"])) == 1
        person.pull()
        person.remove(path)
        person.push("remove by hand")
        host.wait_for(lambda: not host.json("deployments", "list")["deployments"])
        assert containers(deployment=deployment["id"]) == []


def test_twenty_clients_deploy_at_once_and_no_commit_is_lost(
    fleet: Fleet, host: Machine, apps: Path, remote: Path, tmp_path: Path
) -> None:
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.homeport("apps", "add", str(apps))
    answers: dict[int, Any] = {}

    def deploy(number: int) -> None:
        body = {"app_name": "quiet", "version": "1.0.0", "name": f"quiet-{number}", "sites": [{"site_id": "north"}]}
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with fleet.open("/api/v1/deployments", data=data, headers=headers) as answer:
            answers[number] = (answer.status, json.load(answer))

    threads = [threading.Thread(target=deploy, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in answers.values()] == [202] * 20
    ids = {body["deployment_ids"][0] for _, body in answers.values()}
    assert len(ids) == 20
    git("clone", "--quiet", str(remote), str(tmp_path / "check"))
    files = {path.stem for path in (tmp_path / "check" / "deployments" / "north").glob("*-*.yaml")}
    assert files == ids
    host.wait_for(
        lambda: {item["state"] for item in host.json("deployments", "list")["deployments"]} == {"INSTALLED"}
    )
    assert len(host.json("deployments", "list")["deployments"]) == 20


def test_the_event_stream_resumes_without_a_gap_across_a_restart(fleet: Fleet, host: Machine, apps: Path) -> None:
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "quiet@1.0.0", "--site", "north", "--wait")
    first = read_events(fleet, after=0, until="INSTALLED")
    fleet.roles["central"].stop()
    fleet.again("central")
    host.homeport("deploy", "quiet@1.1.0", "--site", "north", "--wait")
    second = read_events(fleet, after=first[-1]["id"], until="INSTALLED")
    whole = read_events(fleet, after=0, until="INSTALLED", times=2)
    seen = [event["id"] for event in first + second]
    assert seen == [event["id"] for event in whole]
    assert seen == sorted(set(seen))


def read_events(fleet: Fleet, *, after: int, until: str, times: int = 1) -> list[dict[str, Any]]:
    """Reads the stream until a deployment has reached a state so many times."""
    events: list[dict[str, Any]] = []
    with fleet.open("/api/v1/events", headers={"Last-Event-ID": str(after)}) as stream:
        for line in stream:
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            events.append(event)
            if event["kind"] == "deployment.state" and event["data"]["state"] == until:
                times -= 1
                if times == 0:
                    return events
    raise AssertionError("the stream ended")


def test_a_site_goes_on_with_central_gone_and_tells_it_all_afterwards(
    fleet: Fleet, host: Machine, apps: Path, remote: Path, tmp_path: Path
) -> None:
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.homeport("apps", "add", str(apps))
    host.homeport("deploy", "quiet@1.0.0", "--site", "north", "--wait")
    for central in fleet.centrals():
        central.kill()
    person = Person(str(remote), tmp_path / "person")
    path, text = deployment_file(name="by-hand", site="north")
    person.write(path, text)
    person.push()
    site_url = fleet.roles["north"].url
    host.wait_for(lambda: state_of(host, "by-hand", "north", url=site_url) == "INSTALLED")
    for central in fleet.centrals():
        fleet.again(central.name)
    host.wait_for(lambda: state_of(host, "by-hand", "north") == "INSTALLED", seconds=15)
    history = host.json("deployments", "history", "by-hand@north")["history"]
    assert [line["after"] for line in history] == ["INSTALLING", "INSTALLED"]


def test_a_killed_node_is_known_and_comes_back_by_itself(host: Machine, remote: Path) -> None:
    fleet = Fleet(host, str(remote))
    fleet.central()
    fleet.site("north")
    fleet.node("n1", "north")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    fleet.roles["n1"].kill()
    host.wait_for(lambda: host.json("nodes", "show", "n1")["liveness"] == "stale", seconds=22)
    fleet.again("n1")
    host.wait_for(lambda: host.json("nodes", "show", "n1")["liveness"] == "live", seconds=8)


def test_deploying_while_git_is_unreachable_is_refused_and_nothing_is_half_done(
    host: Machine, apps: Path, remote: Path
) -> None:
    with serve_git(remote.parent) as server:
        fleet = Fleet(host, server.url(remote.name))
        fleet.central()
        fleet.site("north")
        host.homeport("apps", "add", str(apps))
        before = git("log", "--format=%H", "main", cwd=remote)
    done = host.command("deploy", "quiet@1.0.0", "--site", "north")
    assert done.returncode != 0
    assert "Git" in done.stderr
    assert git("log", "--format=%H", "main", cwd=remote) == before
    assert host.json("deployments", "list")["deployments"] == []
