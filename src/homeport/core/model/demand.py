"""What a workload requires of the nodes of its site, and what nodes already hold of it.

Placement knows these, and not the kind of workload: a deployment, a job, an engine, a replica.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from homeport.core.model.node import Capabilities
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Feature, NodeId, PlacementMode, ProfileType

Requirement = Callable[[Capabilities, Mapping[str, str]], str | None]
"""Called once for each class of equal nodes, with its capabilities and labels: why they cannot take the workload, as
a sentence without its subject, or None. It must be pure."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one instance takes of its node. Processor cores are shared by time: the machine must have as many, but
    they are not reserved."""

    memory_bytes: float = 0.0
    storage_bytes: float = 0.0
    cpu_cores: float = 0.0
    gpus: int = 0
    ports: frozenset[int] = frozenset()
    """Ports of the machine itself; only one instance can use each."""


NOTHING: Final = Resources()


@dataclass(frozen=True, slots=True)
class Demand:
    mode: PlacementMode = PlacementMode.ONE
    """EACH takes every eligible node; ONE and COUNT as many different nodes as wanted, those with the most free
    capacity first."""
    count: int = 1
    """With COUNT: the number of instances."""
    nodes: tuple[NodeId, ...] = ()
    """Only these nodes, where any are named."""
    selector: Selector = ANYTHING
    """Labels that a node must have."""
    profile_type: ProfileType | None = None
    """What its engine must be able to run; None for workloads that need no engine."""
    constraints: Mapping[str, Any] | None = None
    """Margo's constraints of the device."""
    requirements: tuple[Requirement, ...] = ()
    """Further conditions on the node."""
    resources: Resources = NOTHING
    features: tuple[tuple[Feature, str], ...] = ()
    """What the software of the node must support, and what it is called: a node of an earlier release would leave it
    out without a word."""

    @property
    def wanted(self) -> int:
        """The number of instances; EACH has no number."""
        return self.count if self.mode is PlacementMode.COUNT else 1


@dataclass(frozen=True, slots=True)
class Commitment:
    """What one node holds of the workload."""

    since: int
    """A number that grows with each placement. What was moved away from a lost node does not move back with it."""
    is_up: bool = False
    """It became healthy, even if something else is wanted by now."""
    runs: bool = False
    """Something of it runs there, so stopping it interrupts a service."""
    is_settled: bool = False
    """It is healthy and at the wanted revision."""
    has_given_up: bool = False
    """It failed, and neither waiting nor a resource that may appear by itself will change that."""
    is_over: bool = False
    """It failed and is not tried again by itself, whether a user can change that or not."""
    is_leaving: bool = False
    """It is being removed."""
    is_broken: bool = False
    """Its newest order failed after it had touched what ran."""
