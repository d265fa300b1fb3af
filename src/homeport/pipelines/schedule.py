"""Starts saved pipelines when their schedule is due, on one replica of central. Sleeps until then, or until one is
saved."""

import uuid
from datetime import datetime
from typing import Final

import anyio

from homeport.core.model.event import NewEvent, Subject
from homeport.core.pipelines.due import decide, next_due
from homeport.core.pipelines.lifecycle import RUN_OPEN
from homeport.core.pipelines.model import Definition
from homeport.errors import PermanentError, TransientError
from homeport.fleet.central.platform import CentralPlatform
from homeport.log import get_log
from homeport.pipelines.reading import read_pipeline
from homeport.pipelines.service import PipelineRunRequest, Pipelines
from homeport.ports import PIPELINE_RUNS, Cut, RunFilter, Transaction
from homeport.vocabulary import EventKind, RunId, SubjectKind

log = get_log("homeport.pipelines")

SCHEDULE: Final = "schedule"
SLEEP_SECONDS_MAX: Final = 300.0
"""Clocks are set: a longer sleep could miss that."""
PAUSE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 2.0
_SPACE: Final = uuid.UUID("0d9a3f5e-52a3-4f54-8f0e-6a0d7b1c2e3f")


async def run_schedules(central: CentralPlatform) -> None:
    while True:
        try:
            seconds, seen = await _round(central)
            with anyio.move_on_after(seconds):
                await central.store.wait_for_event(seen)
                await anyio.sleep(PAUSE_SECONDS)
        except TransientError as error:
            log.warning("schedules not read, will try again", why=str(error))
            await anyio.sleep(RETRY_SECONDS)


async def _round(central: CentralPlatform) -> tuple[float, int]:
    """Starts what is due. Returns how long to sleep at most, and the last event that was seen."""
    async with central.store.read() as reader:
        seen = await reader.last_event_id()
        found = await reader.scheduled_pipelines()
    now = central.clock.now()
    waits = [SLEEP_SECONDS_MAX]
    for definition in found:
        assert definition.next_at is not None
        if definition.next_at <= now:
            await _fire(central, definition, now)
            waits.append(0.0)
        else:
            waits.append((definition.next_at - now).total_seconds())
    return min(waits), seen


async def _fire(central: CentralPlatform, definition: Definition, now: datetime) -> None:
    """The run's id follows from its time: after a crash in between, the same run is found."""
    assert definition.next_at is not None
    why, following = "", None
    try:
        pipeline = await central.in_thread(read_pipeline, definition.source, f"{definition.name}.yaml")
        following = next_due(pipeline, now)
        assert pipeline.schedule is not None
        due = decide(pipeline.schedule, definition.next_at, now, is_running=await _is_running(central, definition))
        why = due.why
        if due.runs:
            run_id = RunId(str(uuid.uuid5(_SPACE, f"{definition.name} {definition.next_at.isoformat()}")))
            request = PipelineRunRequest(definition.source, pipeline.schedule.inputs, SCHEDULE, run_id)
            pipelines = Pipelines(central)
            await pipelines.check_owner(definition)
            await pipelines.start(request, definition.owner)
    except PermanentError as error:
        why = str(error)
    except TransientError:
        raise
    except Exception as error:  # one bad pipeline must not keep the others from their times, nor end central
        log.exception("scheduled run failed because of a fault in Homeport", pipeline=definition.name)
        why = f"it failed because of a fault in Homeport ({type(error).__name__})"
    if why:
        log.warning("scheduled run skipped", pipeline=definition.name, why=why)

    async def work(tx: Transaction) -> None:
        await tx.set_pipeline_due(definition, following)
        if why:
            await tx.append_events([_skipped(definition, why, now)])

    await central.store.write(work)


async def _is_running(central: CentralPlatform, definition: Definition) -> bool:
    async with central.store.read() as reader:
        found = await reader.page(PIPELINE_RUNS, RunFilter(pipeline=definition.name, states=RUN_OPEN), Cut(100))
    return any(run.trigger == SCHEDULE for run in found.items)


def _skipped(definition: Definition, why: str, now: datetime) -> NewEvent:
    return NewEvent(
        EventKind.PIPELINE_SKIPPED,
        now,
        f"pipeline {definition.name} did not run: {why}",
        site=definition.site,
        data={"pipeline": definition.name, "due_at": str(definition.next_at), "reason": why},
        subject=Subject(SubjectKind.PIPELINE, definition.name),
    )
