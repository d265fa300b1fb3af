"""Windows of measurements: packing, reduction and gaps."""

import math
import zlib

import pytest

from homeport.core.telemetry.windows import (
    POINTS_MAX,
    SERIES_MAX,
    UNPACKED_BYTES_MAX,
    OpenWindow,
    TelemetryWindow,
    pack,
    reduce,
    series_of,
    unpack,
)
from homeport.errors import InvalidInput

CPU = series_of("cpu_percent", {})
WEB = series_of("container_cpu_percent", {"deployment": "d", "component": "web"})


def measured(*points: tuple[int, float], start_ms: int = 0) -> TelemetryWindow:
    window = OpenWindow(start_ms)
    for at_ms, value in points:
        window.add(at_ms, {CPU: value})
    return window.closed()


def test_a_series_that_comes_and_goes_has_no_value_in_between() -> None:
    window = OpenWindow(1000)
    window.add(1000, {CPU: 1.0})
    window.add(6000, {CPU: 2.0, WEB: 50.0})
    window.add(11_000, {WEB: 60.0})
    closed = unpack(pack(window.closed()))
    assert closed.start_ms == 1000
    assert list(closed.offsets) == [0, 5000, 10_000]
    assert [str(value) for value in closed.columns[CPU][0]] == ["1.0", "2.0", "nan"]
    assert [str(value) for value in closed.columns[WEB][0]] == ["nan", "50.0", "60.0"]


def test_each_step_has_its_lowest_average_and_highest_value_and_a_gap_stays_a_gap() -> None:
    points = [(0, 1.0), (20_000, 3.0), (59_999, 8.0), (120_000, 5.0)]
    low, average, high = reduce([measured(*points)], start_ms=0, end_ms=180_000, step_ms=60_000).columns[CPU]
    assert (low[0], average[0], high[0]) == (1.0, 4.0, 8.0)
    assert math.isnan(average[1])
    assert (low[2], average[2], high[2]) == (5.0, 5.0, 5.0)


def test_what_was_reduced_can_be_reduced_again_and_keeps_its_extremes() -> None:
    minutes = reduce([measured((0, 0.0), (1000, 10.0), (60_000, 2.0))], start_ms=0, end_ms=120_000, step_ms=60_000)
    low, average, high = reduce([unpack(pack(minutes))], start_ms=0, end_ms=600_000, step_ms=600_000).columns[CPU]
    assert (low[0], average[0], high[0]) == (0.0, 3.5, 10.0)


def test_points_outside_the_range_do_not_count() -> None:
    points = [(999, 100.0), (1000, 1.0), (1999, 3.0), (2000, 100.0)]
    reduced = reduce([measured(*points)], start_ms=1000, end_ms=2000, step_ms=1000)
    assert list(reduced.columns[CPU][1]) == [2.0]


def test_a_node_that_floods_is_cut_at_the_bounds_of_a_window() -> None:
    window = OpenWindow(0)
    for at_ms in range(POINTS_MAX + 5):
        window.add(at_ms, {CPU: 1.0})
    assert len(window.offsets) == POINTS_MAX
    wide = OpenWindow(0)
    wide.add(0, {series_of("m", {"n": str(number)}): 1.0 for number in range(SERIES_MAX + 5)})
    assert len(wide.columns) == SERIES_MAX


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not compressed",
        zlib.compress(b"{}\n"),
        zlib.compress(b"\xff\n"),
        zlib.compress(b'{"start":0,"points":5,"layout":1,"series":[["cpu",{}]]}\nshort'),
        zlib.compress(b'{"start":0,"points":5,"layout":2,"series":[]}\n'),
        zlib.compress(b'{"start":0,"points":99999999,"layout":1,"series":[]}\n'),
        zlib.compress(bytes(UNPACKED_BYTES_MAX + 1)),
        pack(measured((0, 1.0)))[:-3],
    ],
)
def test_what_is_no_window_is_refused_in_a_sentence(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a window of measurements"):
        unpack(content)
