"""What a role stores of measurements and heartbeats."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryKey, TelemetryRow
from homeport.vocabulary import NodeId, SiteName


class TelemetryReader(Protocol):
    """A caller with limited access finds the node through `SeenReader` first."""

    async def telemetry(
        self, site: SiteName, node_id: NodeId, resolution_seconds: int, *, start: datetime, end: datetime
    ) -> Sequence[TelemetryRow]:
        """The windows of a node that begin in this range, oldest first."""
        ...

    async def telemetry_keys(
        self, site: SiteName, resolution_seconds: int, *, start: datetime
    ) -> Sequence[TelemetryKey]:
        """Which windows of all its nodes there are since then, without their content."""
        ...

    async def heartbeats(
        self, site: SiteName, node_id: NodeId, *, start: datetime, end: datetime, limit: int
    ) -> Sequence[Interval]:
        """The newest `limit` intervals that touch the range, newest first."""
        ...

    async def open_heartbeats(self, site: SiteName) -> Sequence[Interval]:
        """The intervals that have no end yet."""
        ...


class TelemetryWriter(Protocol):
    async def put_telemetry(self, rows: Sequence[TelemetryRow]) -> None:
        """Inserts, or replaces windows with the same key."""
        ...

    async def trim_telemetry(self, resolution_seconds: int, *, before: datetime, bytes_max: int) -> tuple[int, int]:
        """Deletes windows that begin before a time, then the oldest ones while all together take more than
        `bytes_max`. Returns how many windows and bytes are left."""
        ...

    async def put_heartbeats(self, site: SiteName, intervals: Sequence[Interval]) -> None: ...
    async def trim_heartbeats(self, *, before: datetime) -> None:
        """Deletes intervals that ended before a time."""
        ...
