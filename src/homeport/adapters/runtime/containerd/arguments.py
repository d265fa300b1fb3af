"""The `ctr` arguments for a single image: names, options and what containerd alone cannot do. Pure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from homeport.adapters.runtime.compose.files import project_name
from homeport.adapters.runtime.failures import create_failed
from homeport.core.model.custom import CustomSpec, Mount
from homeport.core.model.deployment import digest_of_bytes
from homeport.vocabulary import DeploymentId, NodeId

NAME_MAX = 60
"""containerd allows 76 characters, some of which make a container's id unique."""
_SIZE = re.compile(r"\s([0-9.]+) (B|KiB|MiB|GiB)\s")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def container_name(deployment_id: DeploymentId, component: str, node_id: NodeId) -> str:
    """Like the names of other engines' containers, within containerd's rules: short, no two dashes together."""
    name = re.sub(r"[^a-z0-9]+", "-", project_name(deployment_id, component, node_id)).strip("-")
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - 9].strip('-')}-{digest_of_bytes(name.encode()).removeprefix('sha256:')[:8]}"


def full_reference(image: str) -> str:
    """`nginx` is short for `docker.io/library/nginx:latest`, and ctr takes only the long form."""
    host, slash, _ = image.partition("/")
    if not slash:
        image = f"docker.io/library/{image}"
    elif "." not in host and ":" not in host and host != "localhost":
        image = f"docker.io/{image}"
    has_tag = "@" in image or ":" in image.rpartition("/")[2]
    return image if has_tag else f"{image}:latest"


def create_arguments(
    custom: CustomSpec,
    *,
    labels: Mapping[str, str],
    environment: Mapping[str, str],
    mounts: Sequence[Mount],
    environment_file: str | None,
) -> list[str]:
    """The options of `ctr containers create`: on the machine's own network, confined by the default profile."""
    arguments = ["--net-host", "--seccomp"]
    for name, value in labels.items():
        arguments += ["--label", f"{name}={value}"]
    for name, value in environment.items():
        arguments += ["--env", f"{name}={value}"]
    if environment_file is not None:
        arguments += ["--env-file", environment_file]
    if custom.workdir:
        arguments += ["--cwd", custom.workdir]
    for mount in mounts:
        options = "rbind:ro" if mount.read_only else "rbind:rw"
        arguments += ["--mount", f"type=bind,src={mount.source},dst={mount.target},options={options}"]
    return arguments


def refuse_impossible(component: str, custom: CustomSpec) -> None:
    """Raises WorkFailed with CREATE_FAILED for what needs a network that containerd does not provide."""
    for port in custom.ports:
        if port.host != port.container or port.address:
            asked = f"port {port.container} as {f'{port.address}:' if port.address else ''}{port.host}"
            reason = (
                f"containerd runs it on the machine's own network and cannot publish {asked}; "
                f"let it listen there itself, or use Podman or Docker"
            )
            raise create_failed(component, reason)


def folder_mounts(custom: CustomSpec, volumes: Path) -> list[Mount]:
    """containerd has no volumes: each is a folder of the node."""
    return [
        Mount(str(volumes / mount.source), mount.target, mount.read_only) if mount.is_volume else mount
        for mount in custom.mounts
    ]


def size_of(listing: str) -> int:
    """The bytes of an image, from its line of `ctr images ls`; 0 when unknown."""
    found = _SIZE.search(listing)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


def config_digest(content: Mapping[str, Any]) -> str | None:
    found = content.get("config")
    return str(found["digest"]) if isinstance(found, Mapping) else None


def manifest_digest(index: Mapping[str, Any], architecture: str) -> str | None:
    """The image's manifest for this machine's architecture."""
    entries = [entry for entry in index.get("manifests") or () if isinstance(entry, Mapping)]
    for entry in entries:
        platform = entry.get("platform") or {}
        if platform.get("os") == "linux" and platform.get("architecture") == architecture:
            return str(entry["digest"])
    return str(entries[0]["digest"]) if entries else None
