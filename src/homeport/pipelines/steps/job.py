"""Steps that are jobs. The id of a job follows from its run, step, item and attempt, so that it is submitted once."""

import json
from collections.abc import Mapping
from typing import Any, Final

from homeport.core.jobs.job import ENDED, Job, JobSpec, JobType
from homeport.core.model.instance import Failure
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.functions import json_in
from homeport.core.pipelines.model import ItemResult
from homeport.core.placement.eligibility import bytes_of
from homeport.core.values.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.failpoints import Point, passing
from homeport.jobs.ports import JobRequest, Jobs
from homeport.pipelines.steps.work import Work
from homeport.ports import Store
from homeport.vocabulary import JobId, JobState, NodeId

WAIT_SECONDS: Final = 3600.0
JSON_BYTES_MAX: Final = 64 * 1024


class JobSteps:
    def __init__(self, jobs: Jobs, store: Store) -> None:
        self._jobs = jobs
        self._store = store

    def reference(self, work: Work) -> str:
        return work.key

    async def carry_out(self, work: Work) -> Outcome:
        caller = work.run.owner.caller
        job = await self._jobs.submit(JobRequest(_spec(work), JobId(work.key), work.site), caller)
        passing(Point.PIPELINE_STEP_BEGUN)
        while job.state not in ENDED:
            job = await self._jobs.result(job, seconds=WAIT_SECONDS)
        async with self._store.read() as reader:
            output = (await reader.job_file(job, "") or b"").decode(errors="replace")
        return _outcome(job, output)

    async def stop(self, work: Work) -> None:
        try:
            job = await self._jobs.find(work.key, work.run.owner.caller)
        except NotFound:
            return
        await self._jobs.cancel(job, work.run.owner.caller)


def _spec(work: Work) -> JobSpec:
    action = work.action
    image, memory = _text(action, "image"), _text(action, "memory")
    size = bytes_of(memory) if memory else 0.0
    if memory and not size:
        raise _wrong(work, "memory", f"{memory[:50]!r} is not an amount of memory: write it as in 512Mi or 2Gi.")
    selector = _text(action, "selector")
    return JobSpec(
        type=JobType.CONTAINER if image else JobType.COMMAND,
        command=tuple(_word(each) for each in action.get("command") or ()),
        image=image,
        entrypoint=_text(action, "entrypoint"),
        environment={name: _word(value) for name, value in (action.get("environment") or {}).items()},
        secrets=dict(action.get("secrets") or {}),
        node=NodeId(_text(action, "node")) if action.get("node") else None,
        selector=parse_selector(selector) if selector else ANYTHING,
        cpu_cores=float(action.get("cpu") or 0.0),
        memory_bytes=int(size),
        gpus=int(action.get("gpus") or 0),
        timeout_seconds=work.step.timeout_seconds,
        artifacts=tuple(_word(each) for each in action.get("artifacts") or ()),
    )


def _outcome(job: Job, output: str) -> Outcome:
    head = f"job {job.id} at {job.site} on {job.node_id or 'no node'}: {job.state}"
    end = "" if not output or output.endswith("\n") else "\n"
    log = f"{output}{end}{head}{f', {job.reason}' if job.reason else ''}\n"
    kept = {
        "job": job.id,
        "site": job.site,
        "node": job.node_id,
        "exit_code": job.exit_code,
        "text": output.rstrip("\n"),
        "json": _parsed(output),
        "artifacts": [file.path for file in job.files],
    }
    result = ItemResult(kept, log)
    if job.state is JobState.COMPLETED:
        return Outcome(result)
    found = job.failure
    failure = Failure("CANCELLED", f"The job was cancelled by {job.cancelled_by}") if found is None else found
    return Outcome(result, failure, is_cancelled=job.state is JobState.CANCELLED)


def _parsed(output: str) -> Any:
    """Output that is JSON as a whole, or whose last line is; else None."""
    lines = output.strip().splitlines()
    for text in (output, lines[-1] if lines else ""):
        is_it = text.strip()[:1] in ("{", "[") and len(text) <= JSON_BYTES_MAX
        if is_it and (found := json_in(text)) is not None:
            return found
    return None


def _text(action: Mapping[str, Any], field: str) -> str:
    return _word(action.get(field) or "")


def _word(value: Any) -> str:
    """An expression may be worth a number."""
    return value if isinstance(value, str) else json.dumps(value)


def _wrong(work: Work, field: str, message: str) -> InvalidInput:
    return InvalidInput(problems=[Problem(f"steps.{work.step.name}.{work.step.kind}.{field}", message)])
