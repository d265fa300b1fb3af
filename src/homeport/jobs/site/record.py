"""Makes steps of jobs durable at a site: the jobs, their files, events, and the reports that central has to get, all
in one transaction."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from homeport.core.jobs.job import ENDED, Job, JobFile, JobOutcome
from homeport.core.jobs.steps import JobStep
from homeport.fleet.site.platform import SitePlatform
from homeport.jobs.events import job_event
from homeport.lazy_dataclass import dataclass
from homeport.ports import JobReport, Transaction
from homeport.vocabulary import JobId
from homeport.wire.jobs import files_to_json, job_to_json

WAITING_MAX: Final = 100_000
"""Reports that are looked at after a restore; an open job has a few."""
POSITION: Final = "jobs.position"
"""The role's own value: the position of the last report."""


@dataclass(slots=True)
class Changes:
    """What one transaction changes. A job may have several steps in it."""

    steps: list[JobStep] = field(default_factory=list)
    new: list[Job] = field(default_factory=list)
    """Jobs that were just submitted."""
    again: list[Job] = field(default_factory=list)
    """Unchanged, and to be reported again."""
    quiet: list[Job] = field(default_factory=list)
    """Changed without a step: they are being cancelled."""
    outcomes: dict[JobId, JobOutcome] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.steps or self.new or self.quiet or self.again)


class JobRecorder:
    """Used in the board's turn only, so that positions grow in the order of commits."""

    def __init__(self, platform: SitePlatform) -> None:
        self._platform = platform
        self.position = 0

    async def load(self) -> None:
        async with self._platform.store.read() as reader:
            self.position = await reader.value_as(POSITION, int) or 0

    async def write(self, changes: Changes) -> None:
        now, site = self._platform.clock.now(), self._platform
        events = [job_event(job, None, now) for job in changes.new]
        events += [job_event(step.job, step.before, now) for step in changes.steps]
        reports = [] if site.central is None else self._reports(changes)
        jobs = [*changes.new, *changes.quiet, *(step.job for step in changes.steps)]
        files = {
            step.job.id: (step.job, changes.outcomes[step.job.id])
            for step in changes.steps
            if step.job.id in changes.outcomes
        }

        async def work(tx: Transaction) -> None:
            await tx.put_jobs(jobs)
            for job, outcome in files.values():
                await tx.put_job_files(job, kept_files(outcome))
            await tx.append_events(events)
            if reports:
                await tx.add_job_reports(reports)
                await tx.set_value(POSITION, str(reports[-1].position))

        await site.store.write(work)

    async def renumber(self, after: int) -> None:
        """Gives waiting reports positions beyond this one."""
        async with self._platform.store.read() as reader:
            waiting = await reader.job_reports(after=0, limit=WAITING_MAX)
        self.position = max(self.position, after)
        reports = [JobReport(self.position + number, each.body) for number, each in enumerate(waiting, 1)]
        self.position += len(reports)

        async def work(tx: Transaction) -> None:
            if waiting:
                await tx.drop_job_reports(waiting[-1].position)
                await tx.add_job_reports(reports)
            await tx.set_value(POSITION, str(self.position))

        await self._platform.store.write(work)

    def _reports(self, changes: Changes) -> list[JobReport]:
        bodies = [_body(job, None, None) for job in (*changes.new, *changes.again)]
        bodies += [_body(job, None, None, is_quiet=True) for job in changes.quiet]
        bodies += [_body(step.job, step, changes.outcomes.get(step.job.id)) for step in changes.steps]
        reports = []
        for body in bodies:
            self.position += 1
            reports.append(JobReport(self.position, json.dumps(body)))
        return reports


def kept_files(outcome: JobOutcome) -> Sequence[JobFile]:
    """The artifacts, and the output under the empty path."""
    return (*outcome.files, JobFile("", outcome.output.text.encode()))


def _body(
    job: Job, step: JobStep | None, outcome: JobOutcome | None, *, is_quiet: bool = False
) -> Mapping[str, object]:
    body: dict[str, object] = {"job": job_to_json(job), "before": None if step is None else step.before.value}
    if is_quiet:
        body["quiet"] = True
    if outcome is not None and job.state in ENDED:
        body |= {"output": outcome.output.text, "files": files_to_json(outcome.files)}
    return body
