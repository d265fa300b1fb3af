"""The node's current status, for /healthz, /readyz and its metrics."""

from dataclasses import field

from homeport.core.model.node import Tunable
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NodeId


@dataclass(slots=True)
class NodeStatus:
    node_id: NodeId
    software_version: str
    runtime: str
    engine_version: str = ""
    engine_problem: str | None = "the container engine has not answered yet"
    """One sentence for the operator; None while the engine responds."""
    site: str = ""
    site_problem: str | None = "not connected to the site yet"
    tunable: Tunable = field(default_factory=Tunable)
    """An operator's settings, made at the site."""

    @property
    def connected(self) -> bool:
        return self.site_problem is None

    @property
    def ready(self) -> bool:
        return self.engine_problem is None and self.connected
