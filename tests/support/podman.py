"""What Podman itself says, to check what Homeport claims."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

from tests.support.images import podman_environment


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
