"""Steps that are runs of other pipelines. The id of a run follows from its parent, step, item and attempt."""

from collections import defaultdict
from typing import Final

import anyio

from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.lifecycle import RUN_ENDED
from homeport.core.pipelines.model import ItemResult, Run
from homeport.errors import QueueFull
from homeport.failpoints import Point, passing
from homeport.fleet.central.platform import CentralPlatform
from homeport.pipelines.service import PipelineRunRequest, Pipelines
from homeport.pipelines.steps.work import Work
from homeport.vocabulary import RunId, RunState

PIPELINE: Final = "pipeline"
PAUSE_SECONDS: Final = 0.05
"""After an event: not every one is the end of a run."""


class PipelineSteps:
    def __init__(self, central: CentralPlatform, pipelines: Pipelines) -> None:
        self._central = central
        self._pipelines = pipelines
        self._doors: defaultdict[int, anyio.Lock] = defaultdict(anyio.Lock)

    def reference(self, work: Work) -> str:
        return work.uuid

    async def carry_out(self, work: Work) -> Outcome:
        async with self._central.store.read() as reader:
            run = await reader.pipeline_run(RunId(work.uuid))
        if run is None:
            # Only here: a run that has begun keeps the file it began with.
            saved = await self._pipelines.saved(str(work.action["name"]), work.run.owner.caller)
            inputs = work.action.get("inputs") or {}
            request = PipelineRunRequest(saved.source, inputs, PIPELINE, RunId(work.uuid), work.run)
            run = await self._begun(request, work.run)
        passing(Point.PIPELINE_STEP_BEGUN)
        while run.state not in RUN_ENDED:
            async with self._central.store.read() as reader:
                last = await reader.last_event_id()
                run = await reader.pipeline_run(run.id) or run
            if run.state not in RUN_ENDED:
                await self._central.store.wait_for_event(last)
        log = f"run {run.id} of pipeline {run.pipeline}: {run.state}{f', {run.reason}' if run.reason else ''}\n"
        result = ItemResult({"run": run.id, "state": run.state.value, "outputs": dict(run.outputs)}, log)
        if run.state is RunState.SUCCEEDED:
            return Outcome(result)
        failure = Failure(
            f"RUN_{run.state}", f"Run {run.id[:8]} of pipeline {run.pipeline} is {run.state}: {run.reason}"
        )
        return Outcome(result, failure, is_cancelled=run.state is RunState.CANCELLED)

    async def _begun(self, request: PipelineRunRequest, parent: Run) -> Run:
        """As soon as there is room. One at a time of each depth asks for it: thousands may wait."""
        async with self._doors[parent.depth]:
            while True:
                async with self._central.store.read() as reader:
                    last = await reader.last_event_id()
                try:
                    return await self._pipelines.start(request, parent.owner)
                except QueueFull:
                    await self._central.store.wait_for_event(last)
                    await anyio.sleep(PAUSE_SECONDS)

    async def stop(self, work: Work) -> None:
        async with self._central.store.read() as reader:
            run = await reader.pipeline_run(RunId(work.uuid))
        if run is not None:
            await self._pipelines.cancel(run, work.run.cancelled_by or "its parent")
