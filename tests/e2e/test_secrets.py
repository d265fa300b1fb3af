"""Secrets through real processes: they reach the container, and nothing else of ours ever holds them in plain."""

import json
import os
import re
import subprocess
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment_files import deployment_file
from tests.support.fleet import Fleet
from tests.support.forks import COMMAND
from tests.support.git import Person, bare_repository
from tests.support.podman import container_ids, containers, podman
from tests.support.processes import Machine

PATHS = (
    "/api/v1/secrets",
    "/api/v1/deployments",
    "/api/v1/events/export",
    "/api/v1/audit",
    "/metrics",
    "/api/v1/nodes",
)


def new_value() -> str:
    return f"s3cr3t-{os.urandom(12).hex()}"


def set_secret(host: Machine, site: str, name: str, value: str) -> "subprocess.CompletedProcess[str]":
    """As people do it: through a pipe, for an argument would be seen by others."""
    return subprocess.run(
        [str(COMMAND), "secrets", "set", site, name],
        env={**host.clean_environment(), "HOMEPORT_URL": host.url},
        input=value + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def environment_of(container: str) -> list[str]:
    return list(json.loads(podman("inspect", container))[0]["Config"]["Env"])


def state_of(host: Machine, url: str | None = None) -> str:
    (deployment,) = host.json("deployments", "list", url=url)["deployments"]
    return str(deployment["state"])


def texts_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file of ours, Git objects opened; the folder that is mounted into a container as files left out."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink() or (path.parent.name == "secrets" and "components" in path.parts):
            continue
        content = path.read_bytes()
        yield path, content
        if "objects" in path.parts:
            with_object = zlib.decompressobj()
            try:
                yield path, with_object.decompress(content)
            except zlib.error:
                continue


def leaks(folder: Path, value: str) -> list[str]:
    needles = (value.encode(), json.dumps(value).encode())
    return [str(path) for path, content in texts_below(folder) if any(needle in content for needle in needles)]


def packed(repository: Path) -> str:
    """All that Git knows, packed objects included."""
    command = ["git", "-C", str(repository), "log", "--all", "-p", "--format=%B%an%ae"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def answers(host: Machine, *urls: str) -> Iterator[str]:
    for url in urls:
        for path in PATHS:
            try:
                with host.at(url).open(path) as answer:
                    yield answer.read().decode()
            except urllib.error.HTTPError as error:
                yield error.read().decode()


@contextmanager
def watched_command_lines(value: str) -> Iterator[list[str]]:
    """Looks at every process of the machine, all the time, for a command line that holds the value."""
    seen: list[str] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.002):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    if value.encode() in (line := path.read_bytes()):
                        seen.append(line.decode(errors="replace"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "deployments.git")


@pytest.fixture
def fleet(host: Machine, apps: Path, remote: Path, node_prefix: str) -> Fleet:
    fleet = Fleet(host, str(remote))
    fleet.central()
    fleet.site("north")
    fleet.node(f"{node_prefix}-n1", "north", runtime="podman")
    host.wait_for(lambda: host.json("nodes", "list")["nodes"])
    host.homeport("apps", "add", str(apps))
    return fleet


DEPLOY = (
    "deploy",
    "guarded",
    "--site",
    "north",
    "--set",
    "password=secret://DB",
    "--set",
    "licence=secret://LICENCE",
)


def test_a_secret_is_in_the_container_and_nowhere_else(
    fleet: Fleet, host: Machine, remote: Path, tmp_path: Path, node_prefix: str
) -> None:
    first, licence = new_value(), new_value()
    printed = [done.stdout + done.stderr for done in (set_secret(host, "north", "DB", first),)]
    refused = host.command(*DEPLOY)
    assert refused.returncode == 1
    assert "parameters.licence" in refused.stderr
    assert "no secret LICENCE at north" in refused.stderr
    with watched_command_lines(first) as seen:
        printed += [set_secret(host, "north", "LICENCE", licence).stdout, host.homeport(*DEPLOY, "--wait")]
    assert seen == [], "ps would show it to everybody"

    (container,) = container_ids(node=f"{node_prefix}-n1")
    assert f"PASSWORD={first}" in environment_of(container)
    assert not any(line.startswith("LICENCE=") for line in environment_of(container)), "it is a file, not a variable"
    assert podman("exec", container, "/bin/busybox", "cat", "/run/secrets/licence") == licence
    (mount,) = json.loads(podman("inspect", container))[0]["Mounts"]
    assert (mount["Destination"], mount["RW"]) == ("/run/secrets/licence", False)
    assert Path(mount["Source"]).parent.stat().st_mode & 0o777 == 0o700

    second = new_value()
    printed.append(set_secret(host, "north", "DB", second).stdout)
    (version,) = re.findall(r"version \d+", printed[-1])
    host.wait_for(lambda: container_ids(node=f"{node_prefix}-n1") not in ([], [container]))
    host.wait_for(lambda: state_of(host) == "INSTALLED")
    (renewed,) = container_ids(node=f"{node_prefix}-n1")
    assert f"PASSWORD={second}" in environment_of(renewed)
    history = host.json("deployments", "history", "guarded@north")["history"]
    assert [line["after"] for line in history] == ["INSTALLING", "INSTALLED", "UPDATING", "INSTALLED"]
    assert f"the secret DB has {version} now" in [line["reason"] for line in history]

    assert version in set_secret(host, "north", "DB", second).stdout, "the same value again is no new version"
    used = host.command("secrets", "remove", "north", "DB")
    assert used.returncode != 0
    assert "used by guarded" in used.stderr
    printed += [used.stderr, host.homeport("secrets", "list"), host.homeport("secrets", "list", "-o", "json")]
    printed += [host.homeport("deployments", "show", "guarded@north", "-o", "yaml"), host.homeport("events")]
    printed += [host.homeport("nodes", "show", f"{node_prefix}-n1"), packed(remote)]
    printed += list(answers(host, *(role.url for role in fleet.roles.values())))
    printed.append(podman("inspect", renewed, "--format", "{{json .Config.Labels}}"))
    for value in (first, second, licence):
        assert leaks(tmp_path, value) == []
        assert [text for text in printed if value in text] == []
    assert "secret://DB" in packed(remote), "Git holds the reference"

    host.homeport("deployments", "delete", "guarded@north", "--wait")
    host.homeport("secrets", "remove", "north", "DB")
    assert [secret["name"] for secret in host.json("secrets", "list", "--site", "north")["secrets"]] == ["LICENCE"]


def test_secrets_outlive_central_the_site_and_a_power_cut_of_the_node(
    fleet: Fleet, host: Machine, node_prefix: str
) -> None:
    node = f"{node_prefix}-n1"
    value = new_value()
    for name in ("DB", "LICENCE"):
        set_secret(host, "north", name, value)
    host.homeport(*DEPLOY, "--wait")
    before = container_ids(node=node)
    fleet.roles["central"].kill()
    fleet.roles["north"].kill()
    fleet.roles[node].kill()
    podman("rm", "--force", "--time", "0", *before)
    # Not awaited: without its site a node does not call itself ready.
    fleet.roles[node] = host.start(node, *fleet.commands[node])
    host.wait_for(lambda: containers(node=node))
    (restored,) = container_ids(node=node)
    assert f"PASSWORD={value}" in environment_of(restored), "the node alone brings it back"

    fleet.again("north")
    assert state_of(host, url=fleet.roles["north"].url) == "INSTALLED"
    fleet.roles[node].kill()
    journal = host.folder / f"data-{node}"
    for path in journal.glob("journal.sqlite3*"):
        path.unlink()
    podman("rm", "--force", "--time", "0", restored)
    fleet.again(node)
    host.wait_for(lambda: containers(node=node))
    assert f"PASSWORD={value}" in environment_of(container_ids(node=node)[0]), "the site has it without central"


def test_a_value_on_the_command_line_is_refused_and_not_repeated(host: Machine) -> None:
    done = host.command("secrets", "set", "north", "DB", "hunter2hunter2")
    assert done.returncode == 2
    assert "ps" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_a_file_pushed_for_a_secret_that_is_missing_fails_in_words_until_it_is_set(
    host: Machine, apps: Path, remote: Path, tmp_path: Path
) -> None:
    fleet = Fleet(host, str(remote))
    fleet.central("--poll", "0.5")
    fleet.site("north", "--poll", "0.5")
    fleet.node("n1", "north")
    person = Person(str(remote), tmp_path / "person")
    path, text = deployment_file(name="quiet", site="north")
    person.write(path, text.replace("value: Ahoy", "value: secret://DB"))
    person.push("by hand")

    def failure() -> Any:
        found = host.json("deployments", "list")["deployments"]
        return [item["failure"] for each in found for item in each["instances"] if item["failure"]]

    (why,) = host.wait_for(failure)
    assert (why["code"], why["message"]) == ("SECRET_MISSING", "site north has no secret DB")
    value = new_value()
    set_secret(host, "north", "DB", value)
    host.wait_for(lambda: state_of(host) == "INSTALLED")
    assert leaks(tmp_path, value) == []
