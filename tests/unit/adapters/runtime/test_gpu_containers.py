"""Containers with GPUs: Docker is asked by number, Podman by name and in its own words."""

from pathlib import Path
from typing import Any

import pytest

from homeport.adapters.runtime.docker.engine import DockerEngine
from homeport.adapters.runtime.docker_api.gpus import GpuAccess, gpu_access, with_gpus
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
    (some,) = engine.nvidia_options(["0", "2"])["DeviceRequests"]
    assert some == {"Driver": "nvidia", "Capabilities": [["gpu"]], "DeviceIDs": ["0", "2"]}
    (every,) = engine.nvidia_options(["all"])["DeviceRequests"]
    assert every == {"Driver": "nvidia", "Capabilities": [["gpu"]], "Count": -1}


@pytest.mark.parametrize(
    ("wanted", "makers", "access"),
    [
        ((), ("AMD",), GpuAccess()),
        (("0", "1"), ("NVIDIA", "NVIDIA"), GpuAccess(("0", "1"))),
        (("all",), ("NVIDIA", "Intel"), GpuAccess(("all",))),
        (("0",), (), GpuAccess(("0",))),
        (("7",), ("AMD",), GpuAccess(("7",))),
        (("1",), ("AMD", "AMD"), GpuAccess((), ("/dev/kfd", "/dev/dri"), (("ROCR_VISIBLE_DEVICES", "1"),))),
        (("all",), ("AMD", "AMD"), GpuAccess((), ("/dev/kfd", "/dev/dri"))),
        (("0", "1"), ("Intel", "Intel"), GpuAccess((), ("/dev/dri",), (("ZE_AFFINITY_MASK", "0,1"),))),
        (
            ("0", "2"),
            ("NVIDIA", "AMD", "AMD", "Intel"),
            GpuAccess(("0",), ("/dev/kfd", "/dev/dri"), (("ROCR_VISIBLE_DEVICES", "1"),)),
        ),
    ],
)
def test_gpus_of_each_maker_are_given_in_its_way(
    wanted: tuple[str, ...], makers: tuple[str, ...], access: GpuAccess
) -> None:
    assert gpu_access(wanted, makers) == access


def test_a_container_gets_the_files_of_its_gpus_on_both_engines() -> None:
    content = {"Env": ["A=b", "ZE_AFFINITY_MASK=7"], "HostConfig": {"NetworkMode": "host"}}
    access = gpu_access(["0", "1", "2"], ["NVIDIA", "AMD", "Intel"])
    made = with_gpus(content, access, lambda gpus: {"DeviceRequests": device_requests(gpus)})
    files = ["/dev/kfd", "/dev/dri"]
    assert made["HostConfig"]["Devices"] == [
        {"PathOnHost": file, "PathInContainer": file, "CgroupPermissions": "rwm"} for file in files
    ]
    assert made["Env"] == ["A=b", "ZE_AFFINITY_MASK=7", "ROCR_VISIBLE_DEVICES=0"], "what was said before stays"
    assert made["HostConfig"]["NetworkMode"] == "host"
    libpod = libpod_container("hp-x", {"Image": "i", "Labels": {}, **made})
    assert libpod["devices"] == [{"path": path} for path in ("nvidia.com/gpu=0", *files)]
