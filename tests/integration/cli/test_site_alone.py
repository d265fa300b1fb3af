"""The command line against a site while central is dead: everything that a person at the site needs works there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment_files import deployment_file
from tests.support.fleet import Fleet
from tests.support.git import Person, bare_repository
from tests.support.processes import Machine, Process, machine


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path / "host") as started:
        yield started


def running(site: Process) -> Any:
    """The one deployment, if it is installed at the revision that is wanted."""
    found = site.get("/api/v1/deployments")["deployments"]
    is_done = (
        found and found[0]["state"] == "INSTALLED" and found[0]["instances"][0]["revision"] == found[0]["revision"]
    )
    return found[0] if is_done else None


def test_a_site_answers_every_question_with_central_dead(host: Machine, tmp_path: Path) -> None:
    remote = bare_repository(tmp_path / "deployments.git")
    fleet = Fleet(host, str(remote))
    central = fleet.central()
    site = fleet.site("home", "--poll", "1")
    fleet.node("one", "home")
    path, text = deployment_file(name="hello")
    person = Person(str(remote), tmp_path / "person")
    person.write(path, text)
    person.push()
    host.url = site.url
    first = host.wait_for(lambda: running(site))
    central.kill()
    person.write(path, text.replace("1.0.0", "1.1.0"))
    person.push()
    second = host.wait_for(lambda: (found := running(site)) and found["revision"] != first["revision"] and found)

    (listed,) = host.json("deployments", "list")["deployments"]
    assert listed["revision"] == second["revision"]
    shown = host.json("deployments", "show", "hello@home")
    assert shown["instances"][0]["node_id"] == "one"
    history = host.json("deployments", "history", "hello@home")["history"]
    assert [entry["trigger"] for entry in history] == ["scheduled", "healthy", "changed", "healthy"]
    assert "INSTALLING → INSTALLED" in host.homeport("events", "--deployment", "hello@home")
    assert "All is well." in host.homeport("status")
    assert "commit" in host.homeport("why", "hello@home")
    assert [node["id"] for node in host.json("nodes", "list")["nodes"]] == ["one"]
    lines = [json.loads(line) for line in host.homeport("deployments", "export", "hello@home").splitlines()]
    assert [(line["site"], line["node_id"], line["after"]) for line in lines] == [
        ("home", "one", state) for state in ("INSTALLING", "INSTALLED", "UPDATING", "INSTALLED")
    ]
    exported = tmp_path / "events.jsonl"
    host.homeport("events", "--export", str(exported), "--site", "home", "--since", "2026-01-01")
    assert "site.synced" in {json.loads(line)["kind"] for line in exported.read_text().splitlines()}
    assert exported.stat().st_mode & 0o077 == 0, "it names people"
    host.homeport("deployments", "rollback", "hello@home", "--reason", "too loud", "--wait")
    (instance,) = host.json("deployments", "show", "hello@home")["instances"]
    assert (instance["state"], instance["running_revision"]) == ("INSTALLED", first["revision"])
