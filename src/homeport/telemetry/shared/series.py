"""Series from stored windows: a question about nodes and a range of time, and its answer as plain data, which a site
also sends to central."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from homeport.core.telemetry.metrics import unit_of
from homeport.core.telemetry.ranges import TimeRange, time_range
from homeport.core.telemetry.windows import RESOLUTIONS, Series, TelemetryWindow, reduce, unpack
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Reader
from homeport.vocabulary import NodeId, SiteName
from homeport.wire.values import maybe_moment, number, text

log = get_log("homeport.telemetry")

NODES_MAX: Final = 100
METRICS_MAX: Final = 32
SERIES_SHOWN_MAX: Final = 200
"""Of one answer; more are counted, and a question about fewer metrics or one component shows them."""


@dataclass(frozen=True, slots=True)
class Question:
    nodes: tuple[NodeId, ...]
    metrics: tuple[str, ...] = ()
    """All where empty."""
    deployment: str = ""
    """Only the containers of this deployment; where empty, with no metrics named, only the nodes' own."""
    component: str = ""
    start: datetime | None = None
    end: datetime | None = None
    step_seconds: float | None = None

    def range(self, now: datetime) -> TimeRange:
        return time_range(now, self.start, self.end, self.step_seconds)

    def wants(self, series: Series) -> bool:
        name, labels = series
        said = dict(labels)
        if self.metrics and name not in self.metrics:
            return False
        if not self.deployment:
            return bool(self.metrics) or "deployment" not in said
        return said.get("deployment") == self.deployment and self.component in ("", said.get("component"))


def encode_question(question: Question) -> dict[str, Any]:
    return {
        "nodes": list(question.nodes),
        "metrics": list(question.metrics),
        "deployment": question.deployment,
        "component": question.component,
        "start": None if question.start is None else question.start.isoformat(),
        "end": None if question.end is None else question.end.isoformat(),
        "step_seconds": question.step_seconds,
    }


def decode_question(content: Mapping[str, Any]) -> Question:
    try:
        step = content.get("step_seconds")
        return Question(
            nodes=tuple(NodeId(text(each)) for each in content["nodes"][:NODES_MAX]),
            metrics=tuple(text(each) for each in content["metrics"][:METRICS_MAX]),
            deployment=text(content.get("deployment", "")),
            component=text(content.get("component", "")),
            start=maybe_moment(content.get("start")),
            end=maybe_moment(content.get("end")),
            step_seconds=None if step is None else number(step),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"This is not a question about measurements: {error!r}.") from error


async def find_contents(reader: Reader, site: SiteName, node_id: NodeId, wanted: TimeRange) -> list[bytes]:
    """The packed windows that answer it: of the chosen resolution, and for what was not reduced yet, of the finer
    ones."""
    contents: list[bytes] = []
    position = wanted.start - timedelta(seconds=RESOLUTIONS[-1].window_seconds)
    for resolution in reversed(RESOLUTIONS[: RESOLUTIONS.index(wanted.resolution) + 1]):
        window = timedelta(seconds=resolution.window_seconds)
        start = max(position, wanted.start - window)
        rows = await reader.telemetry(site, node_id, resolution.seconds, start=start, end=wanted.end)
        contents += [row.content for row in rows]
        if rows:
            position = rows[-1].start + window
    return contents


def answer(
    windows: Mapping[NodeId, Iterable[TelemetryWindow]], question: Question, wanted: TimeRange
) -> dict[str, Any]:
    """Takes milliseconds for an hour and tens of them for a week: run it off the event loop."""
    found: list[dict[str, Any]] = []
    for node_id, each in windows.items():
        narrowed = (
            TelemetryWindow(
                window.start_ms,
                window.offsets,
                {series: columns for series, columns in window.columns.items() if question.wants(series)},
            )
            for window in each
        )
        reduced = reduce(narrowed, start_ms=wanted.start_ms, end_ms=wanted.end_ms, step_ms=wanted.step_ms)
        for (name, labels), (low, average, high) in sorted(reduced.columns.items()):
            if all(math.isnan(value) for value in average):
                continue
            found.append(
                {
                    "node": node_id,
                    "metric": name,
                    "unit": unit_of(name),
                    "labels": dict(labels),
                    "minimum": _plain(low),
                    "average": _plain(average),
                    "maximum": _plain(high),
                }
            )
    count = -(-(wanted.end_ms - wanted.start_ms) // wanted.step_ms)
    return {
        "start": wanted.start.isoformat(),
        "end": wanted.end.isoformat(),
        "step_seconds": wanted.step_seconds,
        "resolution_seconds": wanted.resolution.seconds,
        "times": [(wanted.start_ms + place * wanted.step_ms) / 1000 for place in range(count)],
        "series": found[:SERIES_SHOWN_MAX],
        "series_left_out": max(len(found) - SERIES_SHOWN_MAX, 0),
    }


def readable(contents: Sequence[bytes]) -> list[TelemetryWindow]:
    """A window that cannot be read is a gap, and harms no other."""
    windows: list[TelemetryWindow] = []
    for content in contents:
        try:
            windows.append(unpack(content))
        except InvalidInput as error:
            log.warning("telemetry window unreadable", error=str(error))
    return windows


def _plain(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]
