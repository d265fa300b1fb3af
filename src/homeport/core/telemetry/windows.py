"""Windows of points: what one node measured in a stretch of time, as columns of floats that pack well.

A window as measured has one column for each series. A reduced one has three: lowest, average and highest. A point
without a value for a series is NaN there. Times are milliseconds since 1970.
"""

import json
import math
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

Labels: TypeAlias = tuple[tuple[str, str], ...]
Series: TypeAlias = tuple[str, Labels]
"""A metric's name, and its labels sorted by name."""

POINTS_MAX: Final = 1_000
"""Of one window: a faster node has the rest of its points dropped."""
SERIES_MAX: Final = 512
"""Of one window: a node with more containers than this shows the first ones."""
UNPACKED_BYTES_MAX: Final = 8_000_000
COMPRESSION: Final = 6
NOTHING: Final = math.nan
_FLOAT: Final = "f"
_OFFSET: Final = "I"
_LAYOUTS: Final = (1, 3)


@dataclass(frozen=True, slots=True)
class Resolution:
    """`seconds` is 0 for points as they were measured."""

    seconds: int
    window_seconds: int
    keep_seconds: int

    def window_start_ms(self, at_ms: int) -> int:
        return at_ms - at_ms % (self.window_seconds * 1000)


FULL: Final = Resolution(0, 300, 5_400)
"""An hour, and what the next resolution still has to read."""
MINUTE: Final = Resolution(60, 900, 86_400)
TEN_MINUTES: Final = Resolution(600, 10_800, 7 * 86_400)
RESOLUTIONS: Final = (FULL, MINUTE, TEN_MINUTES)
"""The finest first; each is made from the one before it."""


@dataclass(frozen=True, slots=True)
class TelemetryWindow:
    start_ms: int
    offsets: Sequence[int]
    """Milliseconds of each point after the start."""
    columns: Mapping[Series, tuple[Sequence[float], ...]]
    """One column, or lowest, average and highest."""


@dataclass(slots=True)
class OpenWindow:
    """A window that still takes points."""

    start_ms: int
    offsets: "array[int]" = field(default_factory=lambda: array(_OFFSET))
    columns: "dict[Series, array[float]]" = field(default_factory=dict)

    def add(self, at_ms: int, values: Mapping[Series, float]) -> None:
        """Ignores what is more than a window may have."""
        count = len(self.offsets)
        if count >= POINTS_MAX:
            return
        self.offsets.append(at_ms - self.start_ms)
        for series, value in values.items():
            column = self.columns.get(series)
            if column is None:
                if len(self.columns) >= SERIES_MAX:
                    continue
                column = self.columns[series] = array(_FLOAT, [NOTHING]) * count
            column.append(value)
        for column in self.columns.values():
            if len(column) == count:
                column.append(NOTHING)

    def closed(self) -> TelemetryWindow:
        return TelemetryWindow(
            self.start_ms, self.offsets, {series: (column,) for series, column in self.columns.items()}
        )


def reduce(windows: Iterable[TelemetryWindow], *, start_ms: int, end_ms: int, step_ms: int) -> TelemetryWindow:
    """The points between start and end in steps: lowest, average and highest of each step. A step without a value has
    NaN, so that a gap stays a gap."""
    count = -(-(end_ms - start_ms) // step_ms)
    buckets: dict[Series, _Buckets] = {}
    for window in windows:
        places = [(window.start_ms + offset - start_ms) // step_ms for offset in window.offsets]
        for series, columns in window.columns.items():
            found = buckets.get(series)
            if found is None:
                found = buckets[series] = _Buckets(count)
            found.add(places, columns[0], columns[len(columns) // 2], columns[-1])
    offsets = [place * step_ms for place in range(count)]
    return TelemetryWindow(start_ms, offsets, {series: each.columns() for series, each in buckets.items()})


class _Buckets:
    def __init__(self, count: int) -> None:
        self._count = count
        self._points = [0] * count
        self._sums = [0.0] * count
        self._lows = [math.inf] * count
        self._highs = [-math.inf] * count

    def add(
        self, places: Sequence[int], lows: Sequence[float], averages: Sequence[float], highs: Sequence[float]
    ) -> None:
        for place, low, average, high in zip(places, lows, averages, highs, strict=True):
            if average != average or not 0 <= place < self._count:  # noqa: PLR0124 - NaN alone differs from itself
                continue
            self._points[place] += 1
            self._sums[place] += average
            self._lows[place] = min(self._lows[place], low)
            self._highs[place] = max(self._highs[place], high)

    def columns(self) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
        points = self._points
        return (
            array(_FLOAT, [low if n else NOTHING for low, n in zip(self._lows, points, strict=True)]),
            array(_FLOAT, [total / n if n else NOTHING for total, n in zip(self._sums, points, strict=True)]),
            array(_FLOAT, [high if n else NOTHING for high, n in zip(self._highs, points, strict=True)]),
        )


def pack(window: TelemetryWindow) -> bytes:
    """A line of JSON that names the series, then the columns, compressed."""
    layout = max((len(columns) for columns in window.columns.values()), default=1)
    head = {
        "start": window.start_ms,
        "points": len(window.offsets),
        "layout": layout,
        "series": [[name, dict(labels)] for name, labels in window.columns],
    }
    parts = [json.dumps(head, separators=(",", ":")).encode(), b"\n", array(_OFFSET, window.offsets).tobytes()]
    parts += [array(_FLOAT, column).tobytes() for columns in window.columns.values() for column in columns]
    return zlib.compress(b"".join(parts), COMPRESSION)


def unpack(content: bytes) -> TelemetryWindow:
    """Raises InvalidInput for what is not a packed window, or larger than one may be."""
    try:
        return _unpacked(content)
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"This is not a window of measurements: {error}.") from error


def _unpacked(content: bytes) -> TelemetryWindow:
    opened = zlib.decompressobj()
    plain = opened.decompress(content, UNPACKED_BYTES_MAX)
    if not opened.eof:
        raise ValueError("it is too large, or cut off")
    line, _, rest = plain.partition(b"\n")
    head = json.loads(line)
    points, layout = int(head["points"]), int(head["layout"])
    if layout not in _LAYOUTS or not 0 <= points <= POINTS_MAX or len(head["series"]) > SERIES_MAX:
        raise ValueError("its measures are out of range")
    offsets = array(_OFFSET, rest[: 4 * points])
    floats = array(_FLOAT, rest[4 * points :])
    if len(offsets) != points or len(floats) != points * layout * len(head["series"]):
        raise ValueError("its columns are cut off")
    columns = {
        series_of(name, labels): tuple(
            floats[points * place : points * (place + 1)] for place in range(layout * at, layout * (at + 1))
        )
        for at, (name, labels) in enumerate(head["series"])
    }
    return TelemetryWindow(int(head["start"]), offsets, columns)


def series_of(name: str, labels: Mapping[str, str]) -> Series:
    return name, tuple(sorted(labels.items())) if labels else ()
