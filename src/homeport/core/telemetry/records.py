"""Stored measurements: packed windows of one node."""

from datetime import datetime

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NodeId, SiteName


@dataclass(frozen=True, slots=True)
class TelemetryRow:
    """One packed window (`core.telemetry.windows`). Its key is everything but the content."""

    site: SiteName
    node_id: NodeId
    resolution_seconds: int
    """0 for points as they were measured."""
    start: datetime
    content: bytes


@dataclass(frozen=True, slots=True)
class TelemetryKey:
    node_id: NodeId
    start: datetime
