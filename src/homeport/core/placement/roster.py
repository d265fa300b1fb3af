"""The nodes of a site as placement sees them: classes of equal machines, and what each machine already carries.

Eligibility depends on the class alone, so it is computed once for each class and not for each of five thousand
nodes. Memory, storage and GPUs that workloads request are added up; processor cores are not, since they
are shared by time, and Margo never adds them up either.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final

from homeport.core.model.demand import Resources
from homeport.core.model.engines import is_oci, main_engine
from homeport.core.model.node import Capabilities, Node
from homeport.core.model.protocol import PeerProtocol
from homeport.core.placement.eligibility import DeviceProperties
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NodeId

LABEL_ENGINE: Final = "homeport.engine"


@dataclass(slots=True)
class Slot:
    """One node, and how much room is left on it."""

    id: NodeId
    node: Node
    memory_free: float
    storage_free: float
    gpus_free: int = 0
    ports_taken: frozenset[int] = frozenset()
    instances: int = 0

    def has_room(self, need: Resources) -> bool:
        if self.memory_free < need.memory_bytes or self.storage_free < need.storage_bytes:
            return False
        return self.gpus_free >= need.gpus and not (need.ports and need.ports & self.ports_taken)

    def take(self, need: Resources) -> None:
        self.instances += 1
        self.memory_free -= need.memory_bytes
        self.storage_free -= need.storage_bytes
        if need.gpus:
            self.gpus_free -= need.gpus
        if need.ports:
            self.ports_taken |= need.ports


@dataclass
class NodeClass:
    """A class of equal nodes: the same machine, engine, labels and release."""

    capabilities: Capabilities
    labels: Mapping[str, str]
    protocol: PeerProtocol
    slots: list[Slot] = field(default_factory=list)

    @cached_property
    def device(self) -> DeviceProperties:
        """The device of any of them: the id, which distinguishes them, is left out."""
        return device_of(self.slots[0].node, with_id=False)


class Roster:
    """Built once for each plan; placing an instance takes its room, so that the next one sees it."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        kinds: dict[tuple[Capabilities, frozenset[tuple[str, str]], PeerProtocol], NodeClass] = {}
        self.slots: dict[NodeId, Slot] = {}
        for node in sorted(nodes, key=lambda node: node.id):
            able = node.info.capabilities
            slot = Slot(node.id, node, able.memory_bytes, able.disk_bytes, len(able.gpus))
            # Free disk space changes by the minute and does not make another class.
            alike = replace(able, disk_free_bytes=0)
            key = alike, frozenset(node.labels.items()), node.info.protocol
            kinds.setdefault(key, NodeClass(alike, node.labels, node.info.protocol)).slots.append(slot)
            self.slots[node.id] = slot
        self.kinds = tuple(kinds.values())

    def reserve(self, taken: Iterable[tuple[NodeId, Resources]]) -> "Roster":
        """Counts what is already there, of every kind of work."""
        for node_id, need in taken:
            self.take(node_id, need)
        return self

    def take(self, node_id: NodeId, need: Resources) -> None:
        slot = self.slots.get(node_id)
        if slot is not None:
            slot.take(need)


def device_of(node: Node, *, with_id: bool = True) -> DeviceProperties:
    """A node as a Margo device, for its constraints."""
    capabilities = node.info.capabilities
    properties: dict[str, Any] = {
        "cpus": [{"cores": capabilities.cpu_cores, "architecture": capabilities.architecture}],
        "memory": _quantity(capabilities.memory_bytes),
        "storage": _quantity(capabilities.disk_bytes),
        "peripherals": [
            {"type": "gpu", "manufacturer": gpu.manufacturer, "model": gpu.model} for gpu in capabilities.gpus
        ],
        "supportedRuntimes": ["oci"] if is_oci(capabilities.engine) else ["custom"],
        "supportedDeploymentTypes": [kind.value for kind in capabilities.profile_types],
    }
    if with_id:
        properties["id"] = f"{node.site}/{node.id}"
    # Margo requires a label selector in every custom profile; this label always exists.
    engine = {LABEL_ENGINE: main_engine(capabilities.engine)} if capabilities.engine else {}
    return DeviceProperties(properties, {**engine, **node.labels})


def names_a_device(constraints: Mapping[str, Any] | None) -> bool:
    """Whether a rule refers to the id, so that equal machines must be evaluated one by one."""
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
