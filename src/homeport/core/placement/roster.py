"""The nodes of a site as placement sees them: classes of equal machines, and what each machine already carries.

Whether an app may run somewhere depends on the class alone, so it is asked once for each class and not for each of
five thousand nodes. Memory and storage that apps ask for are added up; processor cores are not, for they are shared
by time, and Margo never adds them up either.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from homeport.core.model.deployment import Desired
from homeport.core.model.instance import Instance
from homeport.core.model.node import Capabilities, Node
from homeport.core.placement.eligibility import Device, bytes_of
from homeport.vocabulary import DeploymentId, NodeId, State

OCI_ENGINES: Final = ("podman", "docker", "containerd")
LABEL_ENGINE: Final = "homeport.engine"


@dataclass(frozen=True, slots=True)
class Need:
    """What one instance takes of its node."""

    memory_bytes: float = 0.0
    storage_bytes: float = 0.0


NOTHING = Need()


@dataclass(slots=True)
class Slot:
    """One node, and how much room is left on it."""

    id: NodeId
    node: Node
    memory_free: float
    storage_free: float
    instances: int = 0

    def has_room(self, need: Need) -> bool:
        return self.memory_free >= need.memory_bytes and self.storage_free >= need.storage_bytes

    def take(self, need: Need) -> None:
        self.instances += 1
        self.memory_free -= need.memory_bytes
        self.storage_free -= need.storage_bytes


@dataclass
class Kind:
    """A class of equal nodes: the same machine, engine and labels."""

    capabilities: Capabilities
    labels: Mapping[str, str]
    slots: list[Slot] = field(default_factory=list)

    @cached_property
    def device(self) -> Device:
        """Of any of them: what tells them apart, their id, is left out."""
        return device_of(self.slots[0].node, with_id=False)


class Roster:
    """Filled once for each plan; placing an instance takes its room, so that the next one sees it."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        kinds: dict[tuple[Capabilities, frozenset[tuple[str, str]]], Kind] = {}
        self.slots: dict[NodeId, Slot] = {}
        for node in sorted(nodes, key=lambda node: node.id):
            able = node.info.capabilities
            slot = Slot(node.id, node, able.memory_bytes, able.disk_bytes)
            # How full a disk is changes by the minute and makes no other machine of it.
            alike = replace(able, disk_free_bytes=0)
            key = alike, frozenset(node.info.labels.items())
            kinds.setdefault(key, Kind(alike, node.info.labels)).slots.append(slot)
            self.slots[node.id] = slot
        self.kinds = tuple(kinds.values())

    def carry(self, instances: Iterable[Instance], desired: Mapping[DeploymentId, Desired]) -> "Roster":
        """Counts what is already there. What is being removed still takes its room."""
        needs = {key: need_of(item) for key, item in desired.items()}
        for instance in instances:
            if instance.state is not State.DELETED:
                self.take(instance.node_id, needs.get(instance.deployment_id, NOTHING))
        return self

    def take(self, node_id: NodeId, need: Need) -> None:
        slot = self.slots.get(node_id)
        if slot is not None:
            slot.take(need)


def need_of(desired: Desired) -> Need:
    required = (desired.device_constraints or {}).get("capacityRequirements") or {}
    return Need(bytes_of(required.get("memory") or ""), bytes_of(required.get("storage") or ""))


def device_of(node: Node, *, with_id: bool = True) -> Device:
    """A node in Margo's words, as its constraints see it."""
    capabilities = node.info.capabilities
    properties: dict[str, Any] = {
        "cpus": [{"cores": capabilities.cpu_cores, "architecture": capabilities.architecture}],
        "memory": _quantity(capabilities.memory_bytes),
        "storage": _quantity(capabilities.disk_bytes),
        "peripherals": [
            {"type": "gpu", "manufacturer": gpu.manufacturer, "model": gpu.model} for gpu in capabilities.gpus
        ],
        "supportedRuntimes": ["oci"] if capabilities.engine in OCI_ENGINES else ["custom"],
        "supportedDeploymentTypes": [kind.value for kind in capabilities.profile_types],
    }
    if with_id:
        properties["id"] = f"{node.site}/{node.id}"
    # Margo demands a label selector of every custom profile; this label is there without anybody's doing.
    engine = {LABEL_ENGINE: capabilities.engine} if capabilities.engine else {}
    return Device(properties, {**engine, **node.info.labels})


def names_a_device(constraints: Mapping[str, Any] | None) -> bool:
    """Whether a rule looks at the id, so that equal machines are not equal to it."""
    return any(
        expression["key"] in ("", "/id")
        for rule in (constraints or {}).get("eligibilityRules") or ()
        for expression in _property_expressions(rule)
    )


def _property_expressions(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    selector = rule.get("propertySelector")
    yield from selector["matchExpressions"] if selector else ()


def _quantity(count: int) -> str:
    return f"{count // 1024}Ki"
