"""Containers with GPUs: Docker is asked by number, Podman by name and in its own words."""

from pathlib import Path
from typing import Any

from homeport.adapters.runtime.docker.engine import DockerEngine
from homeport.adapters.runtime.podman.gpu_containers import device_requests, libpod_container, names_of

CONTENT: dict[str, Any] = {
    "Image": "vllm/vllm-openai:latest",
    "Env": ["A=b=c", "EMPTY="],
    "Labels": {"homeport.node": "n1"},
    "ExposedPorts": {"8000/tcp": {}},
    "Cmd": ["--model", "m"],
    "Healthcheck": {"Test": ["NONE"]},
    "HostConfig": {
        "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8001"}]},
        "Mounts": [
            {"Type": "volume", "Source": "cache", "Target": "/root/.cache", "ReadOnly": False},
            {"Type": "bind", "Source": "/secrets/key", "Target": "/key", "ReadOnly": True},
        ],
        "Memory": 2**30,
        "MemorySwap": 2**30,
        "NanoCpus": 1_500_000_000,
        "LogConfig": {"Type": "k8s-file"},
        "DeviceRequests": device_requests(["0", "2"]),
    },
}


def test_a_container_in_the_words_of_podman_has_all_that_was_asked_for() -> None:
    assert libpod_container("hp-x", CONTENT) == {
        "name": "hp-x",
        "image": "vllm/vllm-openai:latest",
        "env": {"A": "b=c", "EMPTY": ""},
        "labels": {"homeport.node": "n1"},
        "devices": [{"path": "nvidia.com/gpu=0"}, {"path": "nvidia.com/gpu=2"}],
        "portmappings": [
            {"container_port": 8000, "protocol": "tcp", "host_ip": "127.0.0.1", "host_port": 8001},
        ],
        "mounts": [{"type": "bind", "source": "/secrets/key", "destination": "/key", "options": ["rbind", "ro"]}],
        "volumes": [{"Name": "cache", "Dest": "/root/.cache", "Options": []}],
        "resource_limits": {
            "memory": {"limit": 2**30, "swap": 2**30},
            "cpu": {"quota": 150_000, "period": 100_000},
        },
        "log_configuration": {"driver": "k8s-file"},
        "command": ["--model", "m"],
        "healthconfig": {"Test": ["NONE"]},
    }


def test_a_container_without_gpus_names_none() -> None:
    assert names_of({"HostConfig": {}}) == []
    assert names_of(CONTENT) == ["nvidia.com/gpu=0", "nvidia.com/gpu=2"]


def test_docker_is_given_numbers_or_all(tmp_path: Path) -> None:
    engine = DockerEngine.__new__(DockerEngine)
    (some,) = engine.gpu_options(["0", "2"])["DeviceRequests"]
    assert some == {"Driver": "nvidia", "Capabilities": [["gpu"]], "DeviceIDs": ["0", "2"]}
    (every,) = engine.gpu_options(["all"])["DeviceRequests"]
    assert every == {"Driver": "nvidia", "Capabilities": [["gpu"]], "Count": -1}
