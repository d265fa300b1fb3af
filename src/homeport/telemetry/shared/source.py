"""Where the routes get their answers: a site from itself, central from its sites and from what they sent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from homeport.core.telemetry.heartbeats import Interval
from homeport.lazy_dataclass import dataclass
from homeport.telemetry.shared.latest import Latest
from homeport.telemetry.shared.series import Question
from homeport.vocabulary import NodeId, SiteName


@dataclass(frozen=True, slots=True)
class Newest:
    nodes: Sequence[Latest]
    unreachable: Sequence[SiteName] = ()
    """Sites that did not answer; what they sent last is among the nodes where it is recent."""


class TelemetrySource(Protocol):
    async def series(self, site: SiteName, question: Question) -> dict[str, Any]: ...
    async def latest(self, sites: Sequence[SiteName]) -> Newest: ...
    async def heartbeats(
        self, site: SiteName, node_id: NodeId, start: datetime, end: datetime
    ) -> Sequence[Interval]: ...
