"""What a site keeps of its nodes' measurements: windows, coarser windows made of them, restarts and late news."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from homeport.adapters.system import RandomIds
from homeport.core.telemetry.windows import FULL, MINUTE, TEN_MINUTES
from homeport.errors import TransientError
from homeport.fleet.site.platform import SitePlatform
from homeport.ports import Sample, Telemetry
from homeport.telemetry.shared.series import Question
from homeport.telemetry.site.heartbeats import HeartbeatRecorder
from homeport.telemetry.site.keeper import TelemetryKeeper
from homeport.vocabulary import Liveness, NodeId, SiteName
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import a_node
from tests.support.clock import ManualClock

pytestmark = pytest.mark.anyio

HOME, ONE = SiteName("home"), NodeId("one")
T = TypeVar("T")


async def inline(work: Callable[[], T]) -> T:
    return work()


class Site:
    """A site's platform in memory, whose clock a test moves."""

    def __init__(self) -> None:
        self.clock, self.disk = ManualClock(), Disk()
        self.nodes = {ONE: a_node("one")}
        self.platform = SitePlatform(
            site=HOME,
            clock=self.clock,
            ids=RandomIds(),
            store=MemoryStore(self.disk),
            central=None,
            nodes=lambda: self.nodes,
            send=lambda node_id, order: None,
            in_thread=inline,
        )
        self.keeper = TelemetryKeeper(self.platform)

    def measured(self, value: float, *, late_seconds: float = 0.0) -> None:
        at = self.clock.now() - timedelta(seconds=late_seconds)
        self.keeper.take(ONE, Telemetry(at, (Sample("cpu_percent", value),)))

    async def live(self, seconds: float, value: Callable[[float], float], *, every: float = 5.0) -> None:
        end = self.clock.passed + seconds
        while self.clock.passed < end:
            self.measured(value(self.clock.passed))
            self.clock.passed += every
            if self.clock.passed % 10 == 0:
                await self.keeper.flush()

    async def series(self, **range_: Any) -> dict[str, Any]:
        start, end = range_.pop("start", None), range_.pop("end", None)
        return await self.keeper.series(Question((ONE,), start=start, end=end, **range_))

    def resolutions(self) -> set[int]:
        return {key[2] for key in self.disk.tables.telemetry}


async def test_points_of_now_are_seen_at_once_and_those_before_come_from_rows() -> None:
    site = Site()
    await site.live(1200, lambda passed: passed)
    told = await site.series(step_seconds=60.0)
    (cpu,) = told["series"]
    known = [value for value in cpu["average"] if value is not None]
    assert len(known) == 20
    assert known == sorted(known), "in the order of time"
    assert told["resolution_seconds"] == MINUTE.seconds
    assert site.resolutions() == {FULL.seconds}, "nothing was reduced yet, and nothing is missing"


async def test_reduced_windows_are_made_once_and_keep_the_extremes_of_a_day() -> None:
    site = Site()
    await site.live(5000, lambda passed: 100.0 if passed == 1000 else 10.0)
    await site.keeper.roll_up()
    rows = dict(site.disk.tables.telemetry)
    assert {key[2] for key in rows} == {FULL.seconds, MINUTE.seconds}
    await site.keeper.roll_up()
    assert site.disk.tables.telemetry == rows
    assert len(site.keeper.unsent) == sum(key[2] == MINUTE.seconds for key in rows)
    site.clock.passed += 4 * 3600
    await site.keeper.trim()
    told = await site.series(start=site.clock.now() - timedelta(hours=7), step_seconds=600.0)
    (cpu,) = told["series"]
    assert max(value for value in cpu["maximum"] if value is not None) == 100.0
    assert max(value for value in cpu["average"] if value is not None) < 20.0
    assert cpu["average"][-1] is None, "a time without points is a gap"


async def test_a_week_is_made_of_ten_minutes() -> None:
    site = Site()
    for _ in range(5):
        await site.live(3600, lambda _: 7.0, every=50.0)
        await site.keeper.roll_up()
    assert TEN_MINUTES.seconds in site.resolutions()
    told = await site.series(start=site.clock.now() - timedelta(days=3))
    assert told["resolution_seconds"] == TEN_MINUTES.seconds
    (cpu,) = told["series"]
    assert {value for value in cpu["average"] if value is not None} == {7.0}


async def test_a_restarted_site_goes_on_in_the_same_window_and_loses_nothing_it_wrote() -> None:
    site = Site()
    await site.live(60, lambda _: 1.0)
    await site.keeper.flush(everything=True)
    site.keeper = TelemetryKeeper(site.platform)
    await site.live(60, lambda _: 2.0)
    told = await site.series(step_seconds=5.0)
    (cpu,) = told["series"]
    assert [value for value in cpu["average"] if value is not None] == [1.0] * 12 + [2.0] * 12


async def test_points_that_are_too_late_are_a_gap_and_a_wrong_clock_is_not_believed() -> None:
    site = Site()
    await site.live(1000, lambda _: 1.0)
    site.measured(99.0, late_seconds=599)
    assert site.keeper.late == 1
    site.measured(5.0, late_seconds=86_400)
    site.clock.passed += 1
    told = await site.series(step_seconds=10.0)
    (cpu,) = told["series"]
    assert max(value for value in cpu["maximum"] if value is not None) == 5.0, "placed by the site's clock"


async def test_windows_wait_for_a_database_that_is_away_and_not_for_ever() -> None:
    site = Site()
    await site.live(30, lambda _: 1.0)
    store = site.platform.store

    class Away:
        async def write(self, work: Any) -> None:
            raise TransientError("The disk is full.")

        read = store.read

    site.platform = replace(site.platform, store=Away())  # type: ignore[arg-type]
    site.keeper._site = site.platform
    site.clock.passed = 600.0
    with pytest.raises(TransientError):
        await site.keeper.flush()
    assert (await site.series(step_seconds=60.0))["series"]
    site.clock.passed = 8000.0
    with pytest.raises(TransientError):
        await site.keeper.flush()
    assert not site.keeper._open


async def test_the_newest_values_are_of_nodes_that_are_known_and_heard_of() -> None:
    site = Site()
    site.measured(3.0)
    (latest,) = site.keeper.latest()
    assert latest.values == {("cpu_percent", ()): 3.0}
    site.clock.passed += 1000
    assert site.keeper.latest() == []


async def test_malformed_samples_are_left_out_and_the_others_kept() -> None:
    site = Site()
    samples = (
        Sample("cpu_percent", 1.0),
        Sample("Bad Name", 1.0),
        Sample("nan", float("nan")),
        Sample("endless", float("inf")),
        Sample("m", 1.0, {"label": "x" * 200}),
        Sample("m", 1.0, {f"l{number}": "" for number in range(20)}),
    )
    site.keeper.take(ONE, Telemetry(site.clock.now(), samples))
    assert list(site.keeper.latest()[0].values) == [("cpu_percent", ())]


async def test_heartbeats_have_a_gap_where_the_site_did_not_run() -> None:
    site = Site()
    recorder = HeartbeatRecorder(site.platform)
    for _ in range(30):
        await recorder.look()
        site.clock.passed += 2
    site.nodes = {ONE: a_node("one", liveness=Liveness.LOST)}
    await recorder.look()
    site.clock.passed += 40
    await recorder.look()
    stopped = site.clock.passed
    site.clock.passed += 600
    site.nodes = {ONE: a_node("one")}
    again = HeartbeatRecorder(site.platform)
    await again.look()
    site.clock.passed += 10
    start = site.clock.now() - timedelta(seconds=site.clock.passed)
    found = await again.timeline(ONE, start, site.clock.now())
    assert [each.state for each in found] == [Liveness.LIVE, Liveness.LOST, Liveness.UNKNOWN, Liveness.LIVE]
    gap = found[2]
    assert gap.end is not None
    assert (gap.end - gap.start).total_seconds() == pytest.approx(600, abs=31)
    assert (gap.start - start).total_seconds() == pytest.approx(stopped, abs=31)
