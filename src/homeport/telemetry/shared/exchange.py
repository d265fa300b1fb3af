"""What a site sends to central, as often as central asks for it: the newest measurements, complete windows, and
heartbeat intervals that began or ended."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryRow
from homeport.core.telemetry.windows import MINUTE, TEN_MINUTES
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.telemetry.shared.latest import Latest, decode_latest, encode_latest
from homeport.vocabulary import Liveness, SiteName
from homeport.wire.values import document, moment, node_id, number

TOPIC: Final = "telemetry"
SERIES_TOPIC: Final = "telemetry-series"
LATEST_TOPIC: Final = "telemetry-latest"
HEARTBEATS_TOPIC: Final = "telemetry-heartbeats"
ROWS_MAX: Final = 500
INTERVALS_SENT_MAX: Final = 5_000
CONTENT_BYTES_MAX: Final = 1_000_000
PACE_SECONDS_MIN: Final = 10.0
PACE_SECONDS_MAX: Final = 300.0
SAMPLES_WITH_CONTAINERS_MAX: Final = 5_000
"""A site with more sends the newest values of its nodes only; those of containers stay with it."""


@dataclass(frozen=True, slots=True)
class TelemetryBatch:
    latest: Sequence[Latest]
    rows: Sequence[TelemetryRow]
    intervals: Sequence[Interval]
    observed_until: datetime


def encode_batch(batch: TelemetryBatch) -> bytes:
    samples = sum(len(each.values) for each in batch.latest)
    content = {
        "latest": encode_latest(batch.latest, with_containers=samples <= SAMPLES_WITH_CONTAINERS_MAX),
        "rows": [
            {
                "node": row.node_id,
                "resolution": row.resolution_seconds,
                "start": row.start.isoformat(),
                "content": base64.b64encode(row.content).decode(),
            }
            for row in batch.rows
        ],
        "heartbeats": encode_intervals(batch.intervals),
        "observed_until": batch.observed_until.isoformat(),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_batch(site: SiteName, body: bytes) -> TelemetryBatch:
    """Raises InvalidInput. A site is believed for itself alone: its name comes from its certificate."""
    try:
        content = document(body)
        rows = [_row(site, each) for each in content["rows"][:ROWS_MAX]]
        intervals = decode_intervals(content["heartbeats"][:INTERVALS_SENT_MAX])
        return TelemetryBatch(
            decode_latest(site, content["latest"]), rows, intervals, moment(content["observed_until"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"This is not a batch of measurements: {error!r}.") from error


def encode_pace(seconds: float) -> bytes:
    """Central's answer to a batch: when it wants the next one."""
    return json.dumps({"next_seconds": seconds}).encode()


def decode_pace(body: bytes) -> float:
    try:
        return pace_within_bounds(number(document(body)["next_seconds"]))
    except (KeyError, TypeError, ValueError):
        return PACE_SECONDS_MAX


def pace_within_bounds(seconds: float) -> float:
    return min(max(seconds, PACE_SECONDS_MIN), PACE_SECONDS_MAX)


def encode_intervals(intervals: Sequence[Interval]) -> list[dict[str, Any]]:
    return [
        {
            "node": each.node_id,
            "start": each.start.isoformat(),
            "end": None if each.end is None else each.end.isoformat(),
            "state": each.state.value,
        }
        for each in intervals
    ]


def decode_intervals(content: Sequence[Mapping[str, Any]]) -> list[Interval]:
    return [
        Interval(
            node_id(each["node"]),
            moment(each["start"]),
            Liveness(each["state"]),
            None if each["end"] is None else moment(each["end"]),
        )
        for each in content
    ]


def _row(site: SiteName, row: Mapping[str, Any]) -> TelemetryRow:
    content = base64.b64decode(row["content"], validate=True)
    if len(content) > CONTENT_BYTES_MAX:
        raise ValueError("a window is too large")
    if row["resolution"] not in (MINUTE.seconds, TEN_MINUTES.seconds):
        raise ValueError("there is no such resolution")
    return TelemetryRow(site, node_id(row["node"]), int(row["resolution"]), moment(row["start"]), content)
