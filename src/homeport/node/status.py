"""What the node knows of itself at this moment, for /healthz, /readyz and its metrics."""

from dataclasses import dataclass

from homeport.vocabulary import NodeId


@dataclass(slots=True)
class Status:
    node_id: NodeId
    software_version: str
    runtime: str
    engine_version: str = ""
    engine_problem: str | None = "the container engine has not answered yet"
    """One sentence for a person; None while the engine answers."""
    site: str = ""
    site_problem: str | None = "not connected to the site yet"

    @property
    def connected(self) -> bool:
        return self.site_problem is None

    @property
    def ready(self) -> bool:
        return self.engine_problem is None and self.connected
