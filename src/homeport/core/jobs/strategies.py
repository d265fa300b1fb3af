"""Scheduling strategies: which of the nodes that can take a job gets it.

A strategy ranks one node for one job; the smallest rank wins, and the id decides between equals. It is pure, sees
only nodes that are eligible and have room, and may be a class of one's own (`package.module:Class` in the
configuration of a site). What a node cannot run is decided before, and not by a strategy.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from homeport.core.jobs.job import JobSpec
from homeport.core.model.node import Node
from homeport.lazy_dataclass import dataclass

LABEL_ZONE: Final = "zone"
"""Nodes with different values of this label fail independently, and `spread` uses that."""


@dataclass(frozen=True, slots=True)
class NodeCandidate:
    """A node that can take the job, and what it has to do already."""

    node: Node
    jobs: int
    """Jobs that it runs or was given."""
    slots: int
    """How many jobs it may have at once."""
    last_given: int
    """Grows with each job given to any node; 0 for a node that has had none."""
    memory_free: float
    """In bytes, after what deployments and jobs have reserved."""
    gpus_free: int
    instances: int
    """Deployments and jobs that have a place on it."""
    zone_jobs: int
    """Jobs on all nodes of its zone."""


class Strategy(Protocol):
    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        """The smallest wins. Ranks of one call are compared with each other, so they must be of one type."""
        ...


class FirstFit:
    """The first node by id: fills one machine before it uses the next."""

    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        return 0


class RoundRobin:
    """In turn: the node that has waited longest for a job."""

    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        return node.last_given


class LeastLoaded:
    """The node with the smallest share of its slots in use; of equals, the one with more free memory."""

    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        return node.jobs / node.slots, -node.memory_free


class GpuAware:
    """Keeps GPUs for those who need them: other jobs go to nodes without, and a job with GPUs to the node where the
    fewest are left over. Of equals, the least loaded."""

    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        has = len(node.node.info.capabilities.gpus)
        left_over = node.gpus_free - job.gpus if job.gpus else has
        return left_over, node.jobs / node.slots


class Spread:
    """Apart from each other: the zone with the fewest jobs, then the node with the fewest."""

    def rank(self, job: JobSpec, node: NodeCandidate) -> Any:
        return node.zone_jobs, node.jobs, node.instances


DEFAULT: Final = "least-loaded"
STRATEGIES: Final[Mapping[str, Callable[[], Strategy]]] = MappingProxyType(
    {
        "first-fit": FirstFit,
        "round-robin": RoundRobin,
        "least-loaded": LeastLoaded,
        "gpu-aware": GpuAware,
        "spread": Spread,
    }
)
