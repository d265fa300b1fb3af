"""Engines as containers, with the real Podman: image, arguments, volume, GPU flags and ports that never collide.

The image stands in for vLLM's, which no machine without a network has: it answers /health and the list of models at
vLLM's port, and ends when it is told to.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cdi import pretended_gpus
from tests.support.images import podman_environment
from tests.support.podman import containers, podman
from tests.support.ports import free_port
from tests.support.processes import Machine, start_up
from tests.unit.adapters.hardware.test_gpus import NVIDIA_SMI

IMAGE = "localhost/homeport-test/engine:1.0.0"
CONTAINERFILE = """FROM scratch
COPY busybox /bin/busybox
COPY health /www/health
COPY models /www/v1/models
ENTRYPOINT ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; /bin/busybox httpd -f -p 8000 -h /www & wait"]
"""


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "Containerfile").write_text(CONTAINERFILE)
    (folder / "health").write_text("ok")
    (folder / "models").write_text(json.dumps({"object": "list", "data": [{"id": "org/model", "object": "model"}]}))
    shutil.copy("/bin/busybox", folder / "busybox")
    command = ["podman", "build", "--layers=false", "--force-rm", "-t", IMAGE, str(folder)]
    subprocess.run(command, env=podman_environment(), check=True, capture_output=True, timeout=120)
    yield IMAGE
    podman("rmi", "--force", IMAGE)


def inspected(host: Machine, name: str) -> dict[str, Any]:
    (row,) = [each for each in host.json("deployments", "list")["deployments"] if each["name"] == name]
    (container,) = containers(deployment=row["id"])
    found: dict[str, Any] = json.loads(podman("inspect", container["Id"]))[0]
    return found


def test_two_engines_of_one_kind_get_their_arguments_volume_and_ports_of_their_own(
    host: Machine, node_prefix: str, image: str
) -> None:
    start_up(host, node=f"{node_prefix}-gpu")
    port = free_port()
    for name in ("one", "two"):
        options = ("--name", name, "--allow-cpu", "--image", image, "--port", str(port))
        said = host.homeport("engines", "provision", "vllm", "org/model", *options)
        assert f"pool {name} serves org/model\n" in said
    one, two = inspected(host, "one"), inspected(host, "two")
    assert "--model org/model" in " ".join(one["Config"]["Cmd"])
    assert "--max-model-len 4096" in " ".join(one["Config"]["Cmd"])
    (mount,) = one["Mounts"]
    assert (mount["Type"], mount["Destination"]) == ("volume", "/root/.cache/huggingface")
    published = [each["HostConfig"]["PortBindings"]["8000/tcp"][0] for each in (one, two)]
    assert {each["HostIp"] for each in published} == {"127.0.0.1"}
    assert published[0]["HostPort"] == str(port)
    assert int(published[1]["HostPort"]) > port
    handoffs = [json.loads(path.read_text()) for path in (host.folder / "up/node/engines").glob("*.json")]
    assert {each["pool_id"]: each["url"].rpartition(":")[2] for each in handoffs} == {
        "one": published[0]["HostPort"],
        "two": published[1]["HostPort"],
    }
    for name in ("one", "two"):
        host.homeport("deployments", "delete", f"{name}@home", "--remove-data", "--wait")


def test_an_engine_gets_the_gpus_of_its_node_with_its_port_and_volume(
    host: Machine, node_prefix: str, image: str, tmp_path: Path
) -> None:
    """With Podman by the name of the Container Device Interface. There is no GPU here: a file pretends two."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n/bin/cat <<END\n{NVIDIA_SMI}END\n")
    tool.chmod(0o755)
    host.environment = {**host.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with pretended_gpus(2):
        start_up(host, node=f"{node_prefix}-gpu")
        port = free_port()
        options = ("--name", "fast", "--image", image, "--port", str(port))
        assert "INSTALLED" in host.homeport("engines", "provision", "vllm", "org/model", *options)
        found = inspected(host, "fast")
        # Of the engine itself: a command that is executed beside it does not get them.
        variables = podman("exec", found["Id"], "/bin/busybox", "cat", "/proc/1/environ").split("\0")
        assert [each for each in variables if each.startswith("GPU_")] == ["GPU_all=yes"]
        assert found["HostConfig"]["PortBindings"]["8000/tcp"][0] == {"HostIp": "127.0.0.1", "HostPort": str(port)}
        (mount,) = found["Mounts"]
        assert (mount["Type"], mount["Destination"]) == ("volume", "/root/.cache/huggingface")
        assert "--model org/model" in " ".join(found["Config"]["Cmd"])
        host.homeport("deployments", "delete", "fast@home", "--remove-data", "--wait")
