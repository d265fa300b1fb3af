"""Drives every run that has not ended, on the one replica of central that holds the lease. Wakes on events only."""

from collections.abc import Callable, Mapping
from typing import Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.pipelines.lifecycle import RUN_OPEN
from homeport.core.pipelines.model import Run, StepKind
from homeport.errors import TransientError
from homeport.fleet.central.platform import CentralPlatform
from homeport.log import get_log
from homeport.pipelines.driver import Driver
from homeport.pipelines.steps.work import StepKindExecutor
from homeport.ports import PIPELINE_RUNS, Cut, RunFilter
from homeport.vocabulary import RunId, SubjectKind

log = get_log("homeport.pipelines")

DRIVEN_MAX: Final = 100
"""Runs that are driven at once; the others wait. Runs that other runs called are not counted: those wait for them."""
PAUSE_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 2.0

Kinds = Callable[[CentralPlatform], Mapping[StepKind, StepKindExecutor]]


class PipelineEngine:
    def __init__(self, kinds: Kinds, *, on_ended: Callable[[Run], None]) -> None:
        self._kinds = kinds
        self._on_ended = on_ended
        self._ended = anyio.Event()
        """A run is not driven any more."""

    async def run(self, central: CentralPlatform) -> None:
        drivers: dict[RunId, Driver] = {}
        kinds = self._kinds(central)
        self._ended = anyio.Event()
        seen = -1
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    last, is_due = await self._look(central, seen)
                    if is_due:
                        await self._start(central, kinds, drivers, tasks)
                    seen = -1 if await self._wait(central, last) else last
                    await anyio.sleep(PAUSE_SECONDS)
                except TransientError as error:
                    log.warning("pipeline runs not read, will try again", why=str(error))
                    seen = -1
                    await anyio.sleep(RETRY_SECONDS)

    async def _wait(self, central: CentralPlatform, last: int) -> bool:
        """For an event, or for the end of a run: another one may take its place. Whether it was that."""
        failure: TransientError | None = None
        async with anyio.create_task_group() as waits:

            async def ended() -> None:
                await self._ended.wait()
                waits.cancel_scope.cancel()

            waits.start_soon(ended)
            try:
                await central.store.wait_for_event(last)
            except TransientError as error:
                failure = error
            waits.cancel_scope.cancel()
        if failure is not None:
            raise failure
        is_ended = self._ended.is_set()
        self._ended = anyio.Event()
        return is_ended

    async def _look(self, central: CentralPlatform, seen: int) -> tuple[int, bool]:
        """The newest event, and whether one of those since `seen` is about a pipeline."""
        async with central.store.read() as reader:
            last = await reader.last_event_id()
            return last, seen < 0 or await reader.has_event_about(SubjectKind.PIPELINE, after=seen)

    async def _start(
        self,
        central: CentralPlatform,
        kinds: Mapping[StepKind, StepKindExecutor],
        drivers: dict[RunId, Driver],
        tasks: TaskGroup,
    ) -> None:
        async with central.store.read() as reader:
            found = await reader.page(PIPELINE_RUNS, RunFilter(states=RUN_OPEN), Cut(None, order="oldest"))
        for run in found.items:
            driver = drivers.get(run.id)
            if driver is not None:
                if run.cancelled_by is not None:
                    driver.wake()
            elif run.depth > 0 or run.cancelled_by is not None or _counted(drivers) < DRIVEN_MAX:
                driver = drivers[run.id] = Driver(central, kinds, run, self._on_ended)
                tasks.start_soon(self._drive, driver, run, drivers)

    async def _drive(self, driver: Driver, run: Run, drivers: dict[RunId, Driver]) -> None:
        try:
            await driver.drive()
        finally:
            drivers.pop(run.id, None)
            self._ended.set()


def _counted(drivers: Mapping[RunId, Driver]) -> int:
    return sum(driver.depth == 0 for driver in drivers.values())
