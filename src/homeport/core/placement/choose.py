"""Which nodes of a site get an instance of a deployment, and why the others do not.

One instance on each eligible node. Capacity is judged by what a machine has, not by what is free at the moment:
a disk that fills up must not make a node lose what already runs there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from homeport.core.model.deployment import Desired
from homeport.core.model.node import Node
from homeport.core.placement.eligibility import Device, refusal
from homeport.vocabulary import Liveness, NodeId


@dataclass(frozen=True, slots=True)
class Placed:
    """`refused` has a sentence for each node that gets nothing, and for each name that is no node."""

    chosen: tuple[NodeId, ...]
    refused: Mapping[NodeId, str]
    silent: tuple[NodeId, ...] = ()
    """Those of `refused` that could take it but are lost: what they already hold stays theirs."""


def place(desired: Desired, nodes: Sequence[Node]) -> Placed:
    wanted = desired.placement.nodes
    known = {node.id: node for node in nodes}
    chosen: list[NodeId] = []
    silent: list[NodeId] = []
    refused = {name: f'The site has no node called "{name}".' for name in wanted if name not in known}
    for node_id in sorted(known):
        node = known[node_id]
        reason = reason_against(desired, node)
        if reason is None and node.liveness is Liveness.LOST:
            silent.append(node_id)
            reason = f"{node_id} has not been heard since {node.last_seen:%Y-%m-%d %H:%M:%S} UTC."
        if reason is None:
            chosen.append(node_id)
        else:
            refused[node_id] = reason
    return Placed(tuple(chosen), refused, tuple(silent))


def reason_against(desired: Desired, node: Node) -> str | None:
    """Why a node cannot take a deployment, whether it is connected or not; None when it can."""
    name, capabilities = node.id, node.info.capabilities
    if desired.placement.nodes and name not in desired.placement.nodes:
        return f"{name} is not among the nodes that were asked for."
    if desired.profile_type not in capabilities.profile_types:
        runs = " and ".join(kind.value for kind in capabilities.profile_types) or "nothing"
        engine = capabilities.engine or "no container engine"
        return f"{name} cannot run {desired.profile_type} apps: with {engine} it runs {runs}."
    reason = refusal(desired.device_constraints, device_of(node))
    return f"{name} {reason}." if reason else None


def device_of(node: Node) -> Device:
    """A node in Margo's words, as its constraints see it."""
    capabilities = node.info.capabilities
    properties: dict[str, Any] = {
        "id": f"{node.site}/{node.id}",
        "cpus": [{"cores": capabilities.cpu_cores, "architecture": capabilities.architecture}],
        "memory": _quantity(capabilities.memory_bytes),
        "storage": _quantity(capabilities.disk_bytes),
        "peripherals": [
            {"type": "gpu", "manufacturer": gpu.manufacturer, "model": gpu.model} for gpu in capabilities.gpus
        ],
        "supportedRuntimes": ["oci"] if capabilities.engine in ("podman", "docker") else ["custom"],
        "supportedDeploymentTypes": [kind.value for kind in capabilities.profile_types],
    }
    return Device(properties, dict(node.info.labels))


def _quantity(count: int) -> str:
    return f"{count // 1024}Ki"
