"""Runs of pipelines come back as they were put, are guarded by their version, and are hidden from other sites."""

from dataclasses import replace
from datetime import timedelta

import pytest

from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.core.model.instance import Failure
from homeport.core.pipelines.lifecycle import RUN_OPEN
from homeport.core.pipelines.model import Definition, ItemResult, ItemRun, Owner, Run, StepRun
from homeport.errors import Conflict
from homeport.fleet.shared.scope import seen_by
from homeport.ports import PIPELINE_RUNS, PIPELINES, WHOLE, Cut, PipelineFilter, RunFilter, Store
from homeport.vocabulary import RunId, RunState, SiteName, StepState
from tests.conformance.store import records

pytestmark = pytest.mark.anyio

OWNER = Owner("ann", Role.OPERATOR, (SiteName("home"),), "token-1", CallerKind.TOKEN)


def a_run(number: int, *, site: str | None = "home", state: RunState = RunState.RUNNING) -> Run:
    item = ItemRun(StepState.FAILED, 2, records.NOW, records.NOW, None, "why", Failure("EXITED", "it ended"), "job-1")
    at = records.NOW + timedelta(minutes=number)
    return Run(
        id=RunId(f"0000000{number}-run"),
        pipeline="report",
        site=None if site is None else SiteName(site),
        state=state,
        version=1,
        source="name: report\n",
        inputs={"a": [1, "ä", None]},
        owner=OWNER,
        trigger="hand",
        created_at=at,
        updated_at=at,
        steps=(StepRun("one", StepState.RUNNING, (item,), is_list=True, reason="r", started_at=at),),
        parent=RunId("parent"),
        depth=1,
        started_at=at,
        finished_at=at if state not in RUN_OPEN else None,
        reason="because",
        outputs={"x": {"y": 1.5}},
    )


async def test_runs_and_results_come_back_as_they_were_put(store: Store) -> None:
    first, second = a_run(1), a_run(2, site=None, state=RunState.FAILED)
    results = {("one", 0): ItemResult({"a": 1}, "log\x00"), ("one", 1): ItemResult(None, "")}
    await store.write(lambda tx: tx.put_pipeline_runs([first, second]))
    await store.write(lambda tx: tx.put_pipeline_results(first.id, results))
    await store.write(lambda tx: tx.put_pipeline_results(first.id, {("one", 1): ItemResult([2], "more")}))
    async with store.read() as reader:
        assert (await reader.page(PIPELINE_RUNS, RunFilter(), WHOLE)).items == [second, first]
        assert (await reader.page(PIPELINE_RUNS, RunFilter(states=RUN_OPEN), Cut(5, order="oldest"))).items == [first]
        assert await reader.pipeline_run(first.id) == first
        assert await reader.pipeline_runs_called("0000000") == [first, second]
        kept = await reader.pipeline_results(first)
    assert (kept["one", 0].output, kept["one", 1]) == ({"a": 1}, ItemResult([2], "more"))


async def test_runs_are_counted_by_how_deep_they_were_called(store: Store) -> None:
    runs = [a_run(1), a_run(2), replace(a_run(3), depth=0), replace(a_run(4, state=RunState.FAILED), depth=0)]
    await store.write(lambda tx: tx.put_pipeline_runs(runs))
    async with store.read() as reader:
        found = [await reader.counts(PIPELINE_RUNS, RunFilter(states=RUN_OPEN, depth=each)) for each in range(3)]
    assert [each.get((), 0) for each in found] == [1, 2, 0]


async def test_a_write_with_an_old_version_is_refused(store: Store) -> None:
    run = a_run(1)
    await store.write(lambda tx: tx.put_pipeline_runs([run]))
    await store.write(lambda tx: tx.put_pipeline_runs([replace(run, version=2, cancelled_by="bob")]))
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.put_pipeline_runs([replace(run, version=2)]))
    with pytest.raises(Conflict):
        await store.write(lambda tx: tx.put_pipeline_runs([run]))


async def test_who_may_see_some_sites_sees_their_runs_and_none_of_the_fleet(store: Store) -> None:
    home, other, fleet = a_run(1), a_run(2, site="other"), a_run(3, site=None)
    await store.write(lambda tx: tx.put_pipeline_runs([home, other, fleet]))
    await store.write(lambda tx: tx.put_pipeline_results(other.id, {("one", 0): ItemResult(1, "secret")}))
    caller = Caller("ann", Role.VIEWER, sites=(SiteName("home"),))
    async with seen_by(caller, store).read() as reader:
        assert (await reader.page(PIPELINE_RUNS, RunFilter(), WHOLE)).items == [home]
        assert await reader.pipeline_runs_called("0000000") == [home]
        assert await reader.pipeline_results(other) == {}


async def test_old_runs_and_too_many_are_deleted_with_their_results(store: Store) -> None:
    runs = [a_run(number, state=RunState.SUCCEEDED) for number in range(1, 6)] + [a_run(6)]
    await store.write(lambda tx: tx.put_pipeline_runs(runs))
    await store.write(lambda tx: tx.put_pipeline_results(runs[0].id, {("one", 0): ItemResult(1, "x")}))
    before = records.NOW + timedelta(minutes=2)
    assert await store.write(lambda tx: tx.trim_pipeline_runs(keep=2, before=before)) == 3
    async with store.read() as reader:
        assert (await reader.page(PIPELINE_RUNS, RunFilter(), WHOLE)).items == [runs[5], runs[4], runs[3]]
        assert await reader.pipeline_results(runs[0]) == {}


async def test_saved_pipelines_come_back_and_the_due_ones_first(store: Store) -> None:
    now = records.NOW
    late = Definition("late", SiteName("home"), 1, "x", OWNER, now, now, now + timedelta(days=1))
    soon = Definition("soon", None, 1, "y", OWNER, now, now, now, is_paused=True)
    never = Definition("never", None, 1, "z", OWNER, now, now)
    await store.write(lambda tx: tx.put_pipelines([late, soon, never]))
    await store.write(lambda tx: tx.remove_pipeline("nothing"))
    async with store.read() as reader:
        assert await reader.scheduled_pipelines() == [soon, late]
        assert await reader.pipeline("late") == late
        assert (await reader.page(PIPELINES, PipelineFilter(), WHOLE)).items == [late, never, soon]
    caller = Caller("ann", Role.VIEWER, sites=(SiteName("home"),))
    async with seen_by(caller, store).read() as reader:
        assert (await reader.page(PIPELINES, PipelineFilter(), WHOLE)).items == [late]
        assert await reader.pipeline("soon") is None
    await store.write(lambda tx: tx.set_pipeline_due(late, now))
    await store.write(lambda tx: tx.set_pipeline_due(replace(soon, version=2), None))  # saved anew meanwhile
    async with store.read() as reader:
        assert [each.next_at for each in await reader.scheduled_pipelines()] == [now, now]
    await store.write(lambda tx: tx.remove_pipeline("late"))
    async with store.read() as reader:
        assert await reader.pipeline("late") is None
