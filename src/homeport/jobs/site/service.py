"""`Jobs` at a site."""

from typing import Any, Final

import anyio

from homeport.core.jobs.job import ENDED, Job
from homeport.core.model.caller import INTERNAL, Caller
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.fleet.shared.scope import seen_by
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.finding import find_job, joined, kept_output
from homeport.jobs.ports import WAIT_SECONDS_MAX, JobRequest, OutputPart
from homeport.jobs.site.board import JobBoard, Submission
from homeport.vocabulary import JobId, SiteName
from homeport.wire.jobs import job_to_json
from homeport.wire.values import number, text, whole

LATE_SECONDS: Final = 2.0
"""How long after its end lines of a job may still come: they travel beside its result, not before it."""


class SiteJobs:
    def __init__(self, platform: SitePlatform, board: JobBoard) -> None:
        self._platform = platform
        self._board = board

    async def submit(self, request: JobRequest, caller: Caller) -> Job:
        if request.site not in (None, self._platform.site):
            message = f"This is {self._platform.site}; submit jobs for {request.site} there, or at central."
            raise InvalidInput(problems=[Problem("site", message)])
        return await self._board.submit(Submission(request.spec, caller.name, request.id))

    async def find(self, text: str, caller: Caller, site: SiteName | None = None) -> Job:
        return await find_job(seen_by(caller, self._platform.store), text, site)

    async def shown(self, job: Job) -> Job:
        return self._board.shown(job)

    async def cancel(self, job: Job, caller: Caller) -> Job:
        return await self._board.cancel(job.id, caller.name)

    async def output(self, job: Job, *, after: int, generation: int, wait_seconds: float) -> OutputPart:
        part = await self._part(job.id, after, generation)
        with anyio.move_on_after(min(wait_seconds, WAIT_SECONDS_MAX)):
            while not part.text and not part.is_complete:
                await self._board.live.wait()
                part = await self._part(job.id, after, generation)
        return part

    async def result(self, job: Job, *, seconds: float) -> Job:
        found = await self._board.job(job.id) or job
        with anyio.move_on_after(seconds):
            while found.state not in ENDED:
                await self._board.live.wait()
                found = await self._board.job(job.id) or found
        return found

    async def asked_for_output(self, content: Any) -> dict[str, Any]:
        """A question of central."""
        try:
            job_id = JobId(text(content["id"], 100))
            after, generation = whole(content["after"]), whole(content["generation"])
            wait_seconds = max(number(content["wait_seconds"]), 0.0)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"This is not a question about a job's output: {error!r}.") from error
        found = await self._board.job(job_id)
        if found is None:
            raise NotFound(f"There is no job {job_id} at {self._platform.site}.")
        part = await self.output(found, after=after, generation=generation, wait_seconds=wait_seconds)
        return {
            "job": job_to_json(part.job),
            "text": part.text,
            "start": part.start,
            "generation": part.generation,
            "is_complete": part.is_complete,
        }

    async def _part(self, job_id: JobId, after: int, generation: int) -> OutputPart:
        job = await self._board.job(job_id)
        assert job is not None, "the caller has seen it"
        if job.state in ENDED:
            return await self._whole(job, after, generation)
        job = self._board.shown(job)
        after = after if generation == job.generation else 0
        shown = self._board.live.read(job.id, job.generation, after)
        if shown is None:
            return OutputPart(job, "", after, job.generation, is_complete=False)
        return OutputPart(job, shown.text, shown.start, job.generation, is_complete=False)

    async def _whole(self, job: Job, after: int, generation: int) -> OutputPart:
        """The end that is kept, and what was printed before it where that is still here. Lines of a job that has just
        ended may come after its result."""
        async with seen_by(INTERNAL, self._platform.store).read() as reader:
            kept = await kept_output(reader, job, after=after, generation=generation)
        after = after if generation == job.generation else 0
        age = (self._platform.clock.now() - job.updated_at).total_seconds()
        with anyio.move_on_after(max(0.0, LATE_SECONDS - max(0.0, age))):
            while kept.start > after:
                shown = self._board.live.read(job.id, job.generation, after)
                if shown is not None:
                    return joined(kept, shown.text, shown.start)
                await self._board.live.wait()
        return kept
