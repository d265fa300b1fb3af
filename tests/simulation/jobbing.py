"""Jobs, submitted at central and at sites, in all that befalls a fleet: none is lost, each has one result, and each
ends or says what it waits for."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from homeport.core.jobs.job import ENDED, JOB, Job, JobSpec
from homeport.jobs.central.service import CentralJobs
from homeport.jobs.ports import SYNC, JobRequest
from homeport.jobs.site.board import JobBoard, Submission
from homeport.vocabulary import JobId, JobState, SiteName
from tests.simulation.job_machine import EXIT, KIND, SECONDS
from tests.simulation.life import SeededIds
from tests.simulation.people import ANN
from tests.simulation.restoring import copy_site, lose_site, restore_site
from tests.simulation.roles import Central, Site
from tests.simulation.scenario import Scenario, Story
from tests.simulation.world import World

BATCH = (1, 1, 3)
TRIMMED = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Promised:
    """A job that somebody was told is durable."""

    id: JobId
    site: SiteName
    is_central: bool


def prepare(scenario: Scenario) -> None:
    world = scenario.world
    world.has_jobs = True
    for site in world.sites.values():
        site.runs_jobs = True
    for node in world.nodes.values():
        node.machine.runs_jobs = True


def submit_at_central(scenario: Scenario) -> None:
    world, site = scenario.world, _any_site(scenario)
    for spec, job_id in _wanted(scenario):
        request = JobRequest(spec, job_id, site.site)
        scenario.people.at_central(
            f"job {job_id[:4]} for {site.name}",
            lambda core, request=request: central_jobs(core.brought).submit(request, ANN),  # type: ignore[misc]
            lambda job: world.jobs.append(Promised(job.id, job.site, is_central=True)),
        )


def submit_at_site(scenario: Scenario) -> None:
    world, site = scenario.world, _any_site(scenario)
    for spec, job_id in _wanted(scenario):
        submission = Submission(spec, ANN.name, job_id)
        scenario.people.at_site(
            site,
            f"job {job_id[:4]} at {site.name}",
            lambda core, submission=submission: board_of(core.brought).submit(submission),  # type: ignore[misc]
            lambda job: world.jobs.append(Promised(job.id, job.site, is_central=False)),
        )


def cancel_job(scenario: Scenario) -> None:
    world = scenario.world
    if not world.jobs:
        return
    promised = scenario.chance.choice(world.jobs)
    job = world.central.disk.tables.jobs.get((promised.site, promised.id))
    if job is not None:
        scenario.people.at_central(
            f"cancel {job.id[:4]} of {job.site}",
            lambda core: central_jobs(core.brought).cancel(job, ANN),
        )


def _wanted(scenario: Scenario) -> Iterator[tuple[JobSpec, JobId]]:
    chance = scenario.chance
    for _ in range(chance.choice(BATCH)):
        environment = {
            SECONDS: str(chance.choice((0, 0.3, 5, 20, 45))),
            EXIT: str(chance.choice((0, 0, 0, 1))),
        }
        spec = JobSpec(
            KIND,
            image="registry.example/job:1",
            environment=environment,
            cpu_cores=chance.choice((0, 0, 3)),
            retries=chance.choice((0, 0, 1, 3)),
            timeout_seconds=chance.choice((10, 600)),
        )
        yield spec, JobId(SeededIds(chance).new())


def _any_site(scenario: Scenario) -> Site:
    return scenario.chance.choice(list(scenario.world.sites.values()))


def central_jobs(brought: Sequence[object]) -> CentralJobs:
    part = next(part for part in brought if SYNC in part.from_sites)  # type: ignore[attr-defined]
    found = part.from_sites[SYNC].__self__  # type: ignore[attr-defined]
    assert isinstance(found, CentralJobs)
    return found


def board_of(brought: Sequence[object]) -> JobBoard:
    (part,) = brought
    found = part.works[JOB]  # type: ignore[attr-defined]
    assert isinstance(found, JobBoard)
    return found


# --- what is promised ---------------------------------------------------------------------------------------------


def unsettled_jobs(world: World) -> Iterator[str]:
    for promised in world.jobs:
        site = world.sites[promised.site]
        yield from _unsettled(world, site, promised)
    for site in world.sites.values():
        if site.disk.tables.job_reports:
            yield f"{site.name} has reports of jobs that central has not taken"
    for node in world.nodes.values():
        open_here = {job.id for job in node.site.disk.tables.jobs.values() if job.state not in ENDED}
        for run_id in node.machine.attempts_of_jobs:
            is_over = run_id.rpartition(".")[0] not in open_here
            if is_over and node.is_member and not _is_swept(world, node.site):
                yield f"{node.name} still has {run_id[:4]}, which has ended"


def _unsettled(world: World, site: Site, promised: Promised) -> Iterator[str]:
    key = promised.site, promised.id
    here, there = site.disk.tables.jobs.get(key), world.central.disk.tables.jobs.get(key)
    is_restored = site.site in world.restored
    if any(each.clock.offset >= TRIMMED for each in (site, world.central)):
        return  # What has ended is deleted after so long.
    if there is None and (promised.is_central or not is_restored):
        yield f"job {promised.id[:4]} of {site.name} is not at central: its site has {here and here.state}"
    is_unneeded = there is not None and there.state is JobState.CANCELLED and not there.is_delivered
    if here is None and not is_restored and not is_unneeded:
        yield f"job {promised.id[:4]} is not at {site.name}: central has {there and there.state}"
    for name, job in ((site.name, here), ("central", there)):
        if job is not None and job.state not in ENDED and not _waits(world, site, job):
            yield f"job {job.id[:4]} of {site.name} is {job.state} at {name}: {job.reason or 'no reason'}"
    if here is not None and there is not None and not is_restored and _result(here) != _result(there):
        yield f"job {here.id[:4]} is {_result(here)} at {site.name} and {_result(there)} at central"


def _waits(world: World, site: Site, job: Job) -> bool:
    """For a node, or for the time of its next attempt, and says so."""
    here = site.disk.tables.jobs.get(job.key)
    if here is None or here.state is not JobState.PENDING or site.core is None:
        return False
    if not board_of(site.core.brought).shown(here).reason:
        return False
    drained = {key[1] for key, node in site.disk.tables.nodes.items() if node.drain is not None}
    able = [each for each in world.nodes.values() if each.site is site and each.is_member]
    return here.not_before is not None or all(each.node_id in drained for each in able)


def _is_swept(world: World, site: Site) -> bool:
    """A site that has forgotten a job cannot name its attempts; the node removes them by itself, more rarely."""
    return site.site in world.restored


def _result(job: Job) -> tuple[object, ...]:
    return job.state, job.exit_code, job.attempt, job.failure


def broken_jobs(world: World) -> Iterator[str]:
    """No attempt was started twice, and there were no more of them than the job allows."""
    started: Counter[tuple[SiteName, str]] = Counter()
    for node in world.nodes.values():
        for run_id, count in node.machine.starts.items():
            started[node.site.site, run_id] += count
    for (site, run_id), count in started.items():
        if count > 1 and site not in world.restored:
            yield f"attempt {run_id[:4]}…{run_id.rpartition('.')[2]} was started {count} times"


def outcomes(central: Central) -> Counter[str]:
    return Counter(f"job {job.state}" for job in central.disk.tables.jobs.values())


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"jobs/{state!r}")


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    apps=(1, 1, 2),
    prepare=prepare,
    actions=(
        (submit_at_central, 22),
        (submit_at_site, 14),
        (cancel_job, 6),
        (copy_site, 5),
        (restore_site, 6),
        (lose_site, 2),
    ),
)
