"""Containers with GPUs on Podman. Its interface for Docker's clients leaves out GPUs by their names of the Container
Device Interface (4.3 does, without a word) or takes them for files; its own, which this translates to, knows them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.runtime.docker_api.client import Json

CDI: Final = "cdi"
CPU_PERIOD_MICROSECONDS: Final = 100_000


def device_requests(gpus: Sequence[str]) -> list[Json]:
    """As with `--device nvidia.com/gpu=0`, or `=all`; `names_of` finds them again."""
    return [{"Driver": CDI, "DeviceIDs": [f"nvidia.com/gpu={gpu}" for gpu in gpus]}]


def names_of(content: Json) -> list[str]:
    requests: Sequence[Json] = content["HostConfig"].get("DeviceRequests", ())
    return [name for each in requests if each["Driver"] == CDI for name in each["DeviceIDs"]]


def libpod_container(name: str, content: Json) -> Json:
    """The same container in the words of Podman's own interface: all that we ask for, and nothing else."""
    host: Json = content["HostConfig"]
    found: Json = {
        "name": name,
        "image": content["Image"],
        "env": dict(each.split("=", 1) for each in content["Env"]),
        "labels": content["Labels"],
        "devices": [{"path": each} for each in (*names_of(content), *_files(host))],
        "portmappings": list(_ports(host.get("PortBindings", {}))),
        "mounts": [_bind(each) for each in host.get("Mounts", ()) if each["Type"] == "bind"],
        "volumes": [_volume(each) for each in host.get("Mounts", ()) if each["Type"] == "volume"],
        "resource_limits": _limits(host),
    }
    if "LogConfig" in host:
        found["log_configuration"] = {"driver": host["LogConfig"]["Type"]}
    if "NetworkMode" in host:
        found["netns"] = {"nsmode": host["NetworkMode"]}
    names = {"Entrypoint": "entrypoint", "Cmd": "command", "WorkingDir": "work_dir", "Healthcheck": "healthconfig"}
    return found | {theirs: content[ours] for ours, theirs in names.items() if ours in content}


def _files(host: Mapping[str, Any]) -> list[str]:
    """Those of other makers beside them."""
    return [each["PathOnHost"] for each in host.get("Devices", ())]


def _ports(bindings: Mapping[str, Sequence[Mapping[str, str]]]) -> Sequence[Json]:
    return [
        {
            "container_port": int(port.partition("/")[0]),
            "protocol": port.partition("/")[2],
            "host_ip": bound.get("HostIp", ""),
            "host_port": int(bound.get("HostPort") or 0),
        }
        for port, each in bindings.items()
        for bound in each
    ]


def _bind(mount: Mapping[str, Any]) -> Json:
    options = ["rbind", "ro" if mount["ReadOnly"] else "rw"]
    return {"type": "bind", "source": mount["Source"], "destination": mount["Target"], "options": options}


def _volume(mount: Mapping[str, Any]) -> Json:
    return {"Name": mount["Source"], "Dest": mount["Target"], "Options": ["ro"] if mount["ReadOnly"] else []}


def _limits(host: Mapping[str, Any]) -> Json:
    limits: Json = {}
    if "Memory" in host:
        limits["memory"] = {"limit": host["Memory"], "swap": host["MemorySwap"]}
    if "NanoCpus" in host:
        quota = int(host["NanoCpus"] * CPU_PERIOD_MICROSECONDS / 1_000_000_000)
        limits["cpu"] = {"quota": quota, "period": CPU_PERIOD_MICROSECONDS}
    return limits
