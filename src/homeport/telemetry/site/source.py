"""Answers of a site from what it keeps itself."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from homeport.core.telemetry.heartbeats import Interval
from homeport.telemetry.shared.latest import Latest
from homeport.telemetry.shared.series import Question
from homeport.telemetry.shared.source import Newest
from homeport.telemetry.site.heartbeats import HeartbeatRecorder
from homeport.telemetry.site.keeper import TelemetryKeeper
from homeport.vocabulary import NodeId, SiteName
from homeport.wire.values import moment


class SiteSource:
    """`TelemetrySource` of this site alone."""

    def __init__(self, keeper: TelemetryKeeper, heartbeats: HeartbeatRecorder) -> None:
        self._keeper = keeper
        self._heartbeats = heartbeats

    async def series(self, site: SiteName, question: Question) -> dict[str, Any]:
        return await self._keeper.series(question)

    async def latest(self, sites: Sequence[SiteName]) -> Newest:
        found: list[Latest] = self._keeper.latest()
        return Newest(found)

    async def heartbeats(self, site: SiteName, node_id: NodeId, start: datetime, end: datetime) -> Sequence[Interval]:
        return await self._heartbeats.timeline(node_id, start, end)


def asked_range(content: Mapping[str, Any]) -> tuple[datetime, datetime]:
    return moment(content["start"]), moment(content["end"])
