"""Data volumes: their names, and the commit trailer that deletes them with their deployment (ADR 0050). Pure."""

import re
from typing import Final

from homeport.core.model.deployment import digest_of_bytes
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, NodeId

_TRAILER: Final = "Remove-Data"
_VOLUME: Final = re.compile(r"hp-(.+)-[0-9a-f]{8}_(.+)", re.DOTALL)
_LINES: Final = re.compile(rf"^{_TRAILER}:[ \t]*(\S+)[ \t]*$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DataVolume:
    """A data volume on a node."""

    name: str
    is_used: bool
    """Whether a container has it, running or not. An unused one was left by a deleted deployment."""


def volume_prefix(deployment_name: str, component: str, node_id: NodeId) -> str:
    """The prefix of the names of a component's volumes on a node; unique per component."""
    whose = f"{deployment_name}/{component}/{node_id}"
    safe = re.sub(r"[^a-z0-9_-]", "-", f"{deployment_name[:40]}-{component[:40]}".lower())
    return f"hp-{safe}-{digest_of_bytes(whose.encode()).removeprefix('sha256:')[:8]}_"


def parse_volume(name: str) -> tuple[str, str] | None:
    """Whose data a volume of an engine is (`name-component` of a deployment), and how the app calls it; None for a
    volume that Homeport did not create. The two names cannot be distinguished for certain: both may have dashes."""
    match = _VOLUME.fullmatch(name)
    return None if match is None else (match[1], match[2])


def data_trailer(deployment_id: DeploymentId) -> str:
    """The trailer of the commit that deletes a deployment's file, which requests that its data is deleted too."""
    return f"{_TRAILER}: {deployment_id}"


def removes_data(message: str, deployment_id: DeploymentId) -> bool:
    return str(deployment_id) in _LINES.findall(message)
