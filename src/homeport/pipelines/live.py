"""What the jobs of a step have printed so far, while they run."""

from collections.abc import Mapping
from typing import Final

from homeport.core.model.caller import Caller
from homeport.core.pipelines.model import ItemKey, ItemResult, PipelineStep, Run, StepKind
from homeport.errors import HomeportError
from homeport.jobs.ports import Jobs
from homeport.pipelines.driver import attempt_head
from homeport.vocabulary import StepState

LIVE_MAX: Final = 8
"""Jobs that are asked for one answer."""


async def with_live_logs(
    jobs: Jobs,
    run: Run,
    step: PipelineStep | None,
    results: Mapping[ItemKey, ItemResult],
    caller: Caller,
) -> Mapping[ItemKey, ItemResult]:
    """The results, with the output so far of the items that are under way. A site out of reach adds nothing."""
    if step is None or step.kind is not StepKind.JOB:
        return results
    name, items = step.name, run.step(step.name).items
    under_way = [number for number, item in enumerate(items) if item.state is StepState.RUNNING and item.reference]
    found = dict(results)
    for number in under_way[:LIVE_MAX]:
        before = results.get((name, number), ItemResult())
        try:
            job = await jobs.find(items[number].reference, caller)
            part = await jobs.output(job, after=0, generation=0, wait_seconds=0.0)
        except HomeportError:
            continue
        log = before.log + attempt_head(step, items[number].attempt) + part.text
        found[name, number] = ItemResult(before.output, log)
    return found
