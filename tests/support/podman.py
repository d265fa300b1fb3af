"""What Podman itself says, to check what Homeport claims."""

import atexit
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support.images import podman_environment

NOTES: Final = Path(tempfile.gettempdir()) / f"homeport-test-nodes-{os.getuid()}"
"""A file for each process of tests that runs containers, with the beginnings of the ids of its nodes."""


def podman(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["podman", *arguments], env=podman_environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert not check or done.returncode == 0, f"podman {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def images(*, where: Callable[[str], bool]) -> list[str]:
    """Ids of the images that have a name like that. A listing breaks off at an image that another test removes
    meanwhile, and says nothing of the others: then it is asked for again."""
    said = ""
    for _ in range(10):
        done = subprocess.run(
            ["podman", "images", "--format", "json"],
            env=podman_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 0:
            return [str(each["Id"]) for each in json.loads(done.stdout) if any(map(where, each.get("Names") or ()))]
        said = done.stderr
        assert "locating image with ID" in said or "image not known" in said, said
    raise AssertionError(f"podman images broke off ten times: {said}")


def containers(*, deployment: str | None = None, node: str | None = None) -> list[dict[str, Any]]:
    """Containers of a deployment or a node, running or not."""
    filters = []
    if deployment is not None:
        filters += ["--filter", f"label=homeport.deployment={deployment}"]
    if node is not None:
        filters += ["--filter", f"label=homeport.node={node}"]
    found = json.loads(podman("ps", "--all", "--format", "json", *filters) or "[]")
    return list(found)


def container_ids(**where: str) -> list[str]:
    return sorted(str(container["Id"]) for container in containers(**where))


def new_node_prefix(kind: str) -> str:
    """For the ids of nodes. It is written down while this process lives, so that what a killed run of tests leaves
    behind is removed by the next one."""
    prefix = f"{kind}-{uuid.uuid4().hex[:8]}"
    with _own_note().open("a") as note:
        note.write(f"{prefix}\n")
    return prefix


@cache
def _own_note() -> Path:
    NOTES.mkdir(mode=0o700, exist_ok=True)
    remove_abandoned(NOTES)
    note = NOTES / f"{os.getpid()}-{_began(os.getpid())}"
    atexit.register(_forget, note, os.getpid())
    return note


def _forget(note: Path, process: int) -> None:
    """After the fixtures have cleaned up. A fork of this process has no part in it."""
    if os.getpid() == process:
        note.unlink(missing_ok=True)


def remove_abandoned(notes: Path) -> None:
    """What the nodes of test runs left behind that are gone without having cleaned up."""
    for note in notes.iterdir():
        process, _, began = note.name.partition("-")
        if _began(int(process)) == began:
            continue
        for prefix in note.read_text().split():
            remove_leftovers(prefix)
        note.unlink(missing_ok=True)


def _began(process: int) -> str:
    """When a process began, in ticks since the machine did; empty where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def remove_leftovers(node_prefix: str) -> None:
    """Removes containers and networks of nodes whose id begins with `node_prefix`, after a failed test."""
    for container in json.loads(podman("ps", "--all", "--format", "json") or "[]"):
        labels = container.get("Labels") or {}
        owner = labels.get("homeport.node") or labels.get("homeport.job-node") or ""
        if str(owner).startswith(node_prefix):
            if container.get("Pod"):
                podman("pod", "rm", "--force", str(container["Pod"]), check=False)
            podman("rm", "--force", "--time", "0", str(container["Id"]), check=False)
            network = f"{labels.get('com.docker.compose.project', '')}_default"
            podman("network", "rm", "--force", network, check=False)
