"""`Jobs` at central: keeps what was submitted until its site has taken it, and what sites report.

A site decides about its jobs. Central only copies; it writes a job once, when it is submitted, and notes a
request to cancel it.
"""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import anyio

from homeport.core.jobs import steps
from homeport.core.jobs.job import ENDED, OPEN, Job, JobFile
from homeport.core.jobs.rules import check_job_id, check_spec
from homeport.core.jobs.schedule import (
    NO_FIT_HINT,
    NO_NODE,
    NO_NODE_HINT,
    SERVE_HINT,
    unplaceable,
    unserved,
    unsupported,
)
from homeport.core.model.caller import Caller
from homeport.core.model.event import Site
from homeport.core.model.node import Node
from homeport.errors import (
    Conflict,
    HomeportError,
    InvalidInput,
    NoNodeFits,
    NotFound,
    PeerUnavailable,
    PermanentError,
    Problem,
    QueueFull,
)
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.scope import seen_by
from homeport.jobs.events import job_event
from homeport.jobs.finding import find_job, kept_output, same_job
from homeport.jobs.metrics import JobMetrics
from homeport.jobs.ports import OUTPUT, WAIT_SECONDS_MAX, WAKE, JobRequest, OutputPart
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    JOBS,
    NODES,
    SECRETS,
    SITES,
    WHOLE,
    Cut,
    JobFilter,
    NodeFilter,
    SecretFilter,
    SeenReader,
    SiteFilter,
    Transaction,
)
from homeport.vocabulary import Actor, JobId, JobState, Liveness, SiteName
from homeport.wire.jobs import files_from_json, job_of_peer, job_to_json, output_from_json
from homeport.wire.values import document, printed, text, whole

log = get_log(__name__)

QUEUE_MAX: Final = 20_000
"""Jobs of one site that have not ended; more are refused."""
SITES_READ: Final = 100
"""So many sites are judged at a time, until one can run the job."""
REASONS_SHOWN: Final = 10
NOT_HEARD: Final = "It has not reported its engines yet."
SENT_MAX: Final = 100
"""Jobs handed to a site in one answer."""
WOKEN_MAX: Final = 1_000
EPOCH_PATTERN: Final = r"[A-Za-z0-9-]{1,100}"
LOST: Final = "The site lost its record of this job: its database is another one now."
SHOWN_SECONDS_MAX: Final = 3.0
REMOVED: Final = "Its site was removed from the fleet."


class CentralJobs:
    def __init__(self, central: CentralPlatform) -> None:
        self._central = central
        self.metrics = JobMetrics()
        self._to_wake: set[SiteName] = set()
        self._bell = anyio.Event()

    # --- for people and programs ------------------------------------------------------------------------------

    async def submit(self, request: JobRequest, caller: Caller) -> Job:
        check_spec(request.spec)
        if request.id is not None:
            check_job_id(request.id)
        job_id = request.id or JobId(self._central.ids.new())
        known = await self._known(job_id, request.site, caller) if request.id is not None else None
        if known is not None:
            return same_job(known, request.spec)
        site = await self._site_for(request, caller)
        now = self._central.clock.now()
        job = Job(
            id=job_id,
            site=site,
            spec=request.spec,
            state=JobState.PENDING,
            version=1,
            created_at=now,
            created_by=caller.name,
            updated_at=now,
            reason="waits for its site",
            is_delivered=False,
        )

        async def work(tx: Transaction) -> Job:
            before = await tx.jobs([job.key])
            if before:  # Two requests at once.
                return same_job(before[0], request.spec)
            counts = await tx.counts(JOBS, JobFilter(site=site, states=OPEN))
            if counts.get((), 0) >= QUEUE_MAX:
                raise QueueFull(f"Site {site} already has {counts[()]} jobs that have not ended.")
            await tx.put_jobs([job])
            await tx.append_events([job_event(job, None, now)])
            return job

        made = await self._central.store.write(work)
        self._wake(site)
        return made

    async def find(self, text: str, caller: Caller, site: SiteName | None = None) -> Job:
        return await find_job(seen_by(caller, self._central.store), text, site)

    async def shown(self, job: Job) -> Job:
        """Reasons to wait change with every job that ends, so they are not reported; they are asked for."""
        can_wait = job.state is JobState.PENDING or (
            job.state is JobState.ASSIGNED and job.spec.inference is not None
        )
        if not can_wait or not job.is_delivered or job.cancelled_by is not None:
            return job
        content = {"id": job.id, "after": 0, "generation": 0, "wait_seconds": 0.0}
        with anyio.move_on_after(SHOWN_SECONDS_MAX):
            try:
                found = _output_part(await self._central.questions.ask(job.site, OUTPUT, content)).job
            except (PeerUnavailable, PermanentError) as error:
                return replace(job, reason=f"waits at its site, which did not report the reason: {error}")
            return replace(job, reason=found.reason) if found.state is job.state else job
        return job

    async def cancel(self, job: Job, caller: Caller) -> Job:
        """One that its site has not taken yet is cancelled at once."""
        now = self._central.clock.now()

        async def work(tx: Transaction) -> Job:
            (found,) = await tx.jobs([job.key]) or (job,)
            if found.state in ENDED or found.cancelled_by is not None:
                return found
            asked = replace(found, cancelled_by=caller.name, version=found.version + 1, updated_at=now)
            asked = replace(asked, reason=f"is being cancelled by {caller.name}")
            await tx.put_jobs([asked])
            return asked

        asked = await self._central.store.write(work)
        self._wake(job.site)
        return asked

    async def output(self, job: Job, *, after: int, generation: int, wait_seconds: float) -> OutputPart:
        """From the site while the job runs there; from the record when it has ended, or the site is out of reach. The
        record has the end: for what came before it, of a job that has just ended, the site is asked too."""
        if job.state in ENDED:
            return await self._ended_output(job, after, generation)
        if job.is_delivered:
            try:
                return await self._asked_output(job, after, generation, min(wait_seconds, WAIT_SECONDS_MAX))
            except (PeerUnavailable, PermanentError):
                await anyio.sleep(min(wait_seconds, 1.0))
        else:
            await self._change(min(wait_seconds, WAIT_SECONDS_MAX))
        return await self._kept(job, after, generation)

    async def _ended_output(self, job: Job, after: int, generation: int) -> OutputPart:
        part = await self._kept(job, after, generation)
        if job.is_delivered and part.start > (after if generation == part.generation else 0):
            with anyio.move_on_after(SHOWN_SECONDS_MAX), suppress(PeerUnavailable, PermanentError):
                return await self._asked_output(job, after, generation, 0.0)
        return part

    async def _asked_output(self, job: Job, after: int, generation: int, seconds: float) -> OutputPart:
        content = {"id": job.id, "after": after, "generation": generation, "wait_seconds": seconds}
        return _output_part(await self._central.questions.ask(job.site, OUTPUT, content))

    async def _kept(self, job: Job, after: int, generation: int) -> OutputPart:
        async with self._central.store.read() as reader:
            (now,) = await reader.jobs([job.key]) or (job,)
            return await kept_output(reader, now, after=after, generation=generation)

    async def result(self, job: Job, *, seconds: float) -> Job:
        found = job
        with anyio.move_on_after(seconds):
            while found.state not in ENDED:
                async with self._central.store.read() as reader:
                    last = await reader.last_event_id()
                    (found,) = await reader.jobs([job.key]) or (found,)
                if found.state not in ENDED:
                    await self._central.store.wait_for_event(last)
        return found

    async def _change(self, seconds: float) -> None:
        async with self._central.store.read() as reader:
            last = await reader.last_event_id()
        with anyio.move_on_after(seconds):
            await self._central.store.wait_for_event(last)

    def _wake(self, site: SiteName) -> None:
        self._to_wake.add(site)
        self._bell.set()

    async def wake_sites(self, _central: CentralPlatform) -> None:
        """Tells sites that there is something for them. Best effort: they also ask by themselves."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self._bell.wait()
                self._bell = anyio.Event()
                sites, self._to_wake = self._to_wake, set()
                for site in sorted(sites)[:WOKEN_MAX]:
                    tasks.start_soon(self._wake_site, site)

    async def _wake_site(self, site: SiteName) -> None:
        try:
            await self._central.questions.ask(site, WAKE, {})
        except HomeportError as error:
            log.debug("site not notified of jobs", site=site, why=str(error))

    async def _known(self, job_id: JobId, site: SiteName | None, caller: Caller) -> Job | None:
        async with self._central.store.read() as reader:
            found = [job for job in await reader.jobs_called(job_id) if job.id == job_id]
        if site is not None:
            found = [job for job in found if job.site == site]
        if caller.sites and any(job.site not in caller.sites for job in found):
            raise Conflict(f'There is already a job "{job_id}".', hint="Choose another id, or leave it out.")
        return found[0] if found else None

    async def _site_for(self, request: JobRequest, caller: Caller) -> SiteName:
        """The one that was named, or the least busy of those that can run it."""
        reasons: list[tuple[SiteName, str]] = []
        silent: list[SiteName] = []
        async with seen_by(caller, self._central.store).read() as reader:
            having = await _sites_having(reader, request)
            async with aclosing(_candidates(reader, request.site)) as candidates:
                async for sites in candidates:
                    there = NodeFilter().within([site.name for site in sites])
                    nodes = _by_site((await reader.page(NODES, there, WHOLE)).items)
                    for site in sites:
                        why = self._why_not(request, site, nodes.get(site.name, []), having)
                        if why is None:
                            return site.name
                        if why == NOT_HEARD:
                            silent.append(site.name)
                        reasons.append((site.name, why))
        if silent:
            return silent[0]
        telling = [each for each in reasons if each[1] != NO_NODE] or reasons
        shown = [why if len(telling) == 1 else f"{site}: {why}" for site, why in sorted(telling)[:REASONS_SHOWN]]
        hint = NO_NODE_HINT if telling and all(why == NO_NODE for _, why in telling) else NO_FIT_HINT
        raise NoNodeFits(
            " ".join(shown) or "There is no site.",
            hint=hint if request.spec.inference is None else SERVE_HINT,
        )

    def _why_not(
        self, request: JobRequest, site: Site, nodes: Sequence[Node], having: Mapping[str, Collection[SiteName]]
    ) -> str | None:
        why = unsupported(request.spec, site.protocol) or self._unable(request, site.name, nodes)
        lacking = (name for name in request.spec.secrets.values() if site.name not in having[name])
        return why or next((f'It has no secret "{name}".' for name in lacking), None)

    def _unable(self, request: JobRequest, site: SiteName, nodes: Sequence[Node]) -> str | None:
        """Central knows the engines of the sites that it reaches; a named one that is away judges by itself, and so
        does one that has not told its engines since central was started."""
        asked, pools = request.spec.inference, self._central.inference.pools
        if asked is None:
            return unplaceable(request.spec, nodes)
        is_live = any(node.liveness is Liveness.LIVE for node in nodes)
        if request.site is not None and not is_live:
            return None
        if is_live and not self._central.inference.has_heard_of(site):
            return NOT_HEARD
        return unserved(asked, site, () if pools is None else pools.sites_serving(asked.model))

    # --- for sites --------------------------------------------------------------------------------------------

    async def take(self, site: SiteName, content: bytes) -> bytes:
        """One exchange with a site: takes its reports in order, each once, and answers with what it should do."""
        said = _read(content)
        changed: list[Job] = []

        async def work(tx: Transaction) -> tuple[int, bool]:
            changed.clear()
            return await self._apply(tx, site, said, changed)

        acknowledged, is_restored = await self._central.store.write(work)
        self.metrics.ended(changed)
        async with self._central.store.read() as reader:
            undelivered = JobFilter(site=site, delivered=False, states=OPEN)
            waiting = await reader.page(JOBS, undelivered, Cut(SENT_MAX, order="oldest"))
            asked = JobFilter(site=site, delivered=True, cancelled=True, states=OPEN)
            cancelled = await reader.page(JOBS, asked, Cut(SENT_MAX, order="oldest"))
        if not said.reports:
            # Only then is it certain that the site has not taken one of them in the meantime.
            await self._end_undelivered([job for job in waiting.items if job.cancelled_by is not None])
        answer = {
            "acknowledged": acknowledged,
            "restored": is_restored,
            "jobs": [job_to_json(job) for job in waiting.items if job.cancelled_by is None],
            "cancel": [{"id": job.id, "by": job.cancelled_by} for job in cancelled.items],
        }
        return json.dumps(answer).encode()

    async def _apply(self, tx: Transaction, site: SiteName, said: "_Said", changed: list[Job]) -> tuple[int, bool]:
        """The position that was taken last, and whether the site speaks from an older copy of its database: then it
        uses positions again, nothing of it is taken, and it has to report again under new ones."""
        key = f"jobs.site.{site}"
        known_epoch, last, mark = await tx.value_as(key, _taken) or (said.epoch, 0, "")
        if known_epoch != said.epoch:
            changed += await self._lose_open(tx, site, frozenset())
            last, mark = 0, ""
        if _is_other(said.reports, last, mark):
            return last, True
        fresh = [each for each in said.reports if each["position"] > last]
        for each in fresh:
            try:
                changed += await self._copy(tx, site, each["body"])
            except (InvalidInput, KeyError, TypeError, ValueError) as error:
                # One bad report harms itself alone; the job's next one repairs it.
                log.warning("job report not applied", site=site, why=repr(error))
            last, mark = each["position"], each["mark"]
        if said.open is not None:
            changed += await self._lose_open(tx, site, said.open)
        if fresh or known_epoch != said.epoch:
            await tx.set_value(key, f"{said.epoch} {last} {mark}")
        return last, False

    async def _copy(self, tx: Transaction, site: SiteName, body: Mapping[str, Any]) -> Sequence[Job]:
        """The job as it is stored now, where that has changed."""
        job = job_of_peer(body["job"])
        if job.site != site:
            raise InvalidInput("a site reports its own jobs only")
        found = await tx.jobs([job.key])
        stored = found[0] if found else None
        if stored is not None and stored.state in ENDED:
            return ()  # An ended job stays as it is, whatever an older copy of the site's database says.
        version = 1 if stored is None else stored.version + 1
        by = job.cancelled_by or (None if stored is None else stored.cancelled_by)
        await tx.put_jobs([replace(job, version=version, cancelled_by=by, is_delivered=True)])
        if job.state in ENDED and "output" in body:
            files = files_from_json(body.get("files", ()))
            await tx.put_job_files(job, (*files, JobFile("", output_from_json(body["output"]).encode())))
        is_told = body.get("before") is not None or stored is None
        if is_told and not body.get("quiet"):
            before = None if body.get("before") is None else JobState(body["before"])
            await tx.append_events([job_event(job, before, job.updated_at)])
        return (job,)

    async def forget_site(self, tx: Transaction, site: SiteName, now: datetime) -> None:
        """It was removed from the fleet: nothing more will be heard of its jobs, nor will it take those that wait."""
        found = await tx.page(JOBS, JobFilter(site=site, states=OPEN), Cut(None))
        await _lose(tx, found.items, REMOVED, now)

    async def _lose_open(self, tx: Transaction, site: SiteName, known: frozenset[str]) -> Sequence[Job]:
        """The site has another database, or an older copy: it will say nothing more about jobs that are not in it."""
        found = await tx.page(JOBS, JobFilter(site=site, delivered=True, states=OPEN), Cut(None))
        lost = [job for job in found.items if job.id not in known]
        return await _lose(tx, lost, LOST, self._central.clock.now())

    async def _end_undelivered(self, jobs: Sequence[Job]) -> None:
        """Cancelled before the site had them."""
        if not jobs:
            return
        now = self._central.clock.now()
        ended = [steps.cancel(job, Actor.CENTRAL, now).job for job in jobs]

        async def work(tx: Transaction) -> None:
            await tx.put_jobs(ended)
            await tx.append_events([job_event(job, JobState.PENDING, now) for job in ended])

        await self._central.store.write(work)
        self.metrics.ended(ended)


async def _lose(tx: Transaction, jobs: Sequence[Job], why: str, now: datetime) -> Sequence[Job]:
    lost = [steps.lose(job, why, now) for job in jobs]
    await tx.put_jobs([step.job for step in lost])
    await tx.append_events([job_event(step.job, step.before, now) for step in lost])
    return [step.job for step in lost]


def _output_part(answer: Mapping[str, Any]) -> OutputPart:
    """Raises InvalidInput."""
    try:
        return OutputPart(
            job_of_peer(answer["job"]),
            printed(answer["text"]),
            whole(answer["start"]),
            whole(answer["generation"]),
            is_complete=bool(answer["is_complete"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"The site's answer about a job cannot be read: {error!r}.") from error


def _taken(text: str) -> tuple[str, int, str]:
    """Epoch, position and mark of the report that was taken last."""
    epoch, number, mark, *_ = *text.split(" "), ""
    return epoch, int(number), mark


@dataclass(frozen=True, slots=True)
class _Said:
    """By a site, in one exchange."""

    epoch: str
    reports: Sequence[Mapping[str, Any]]
    open: frozenset[str] | None
    """After it was restored from an older copy: the jobs that it knows."""


def _is_other(reports: Sequence[Mapping[str, Any]], last: int, mark: str) -> bool:
    """Whether reports repeat positions that were taken, with something else in them. A site whose answer was lost
    repeats the very report that was taken last."""
    if not mark or not reports or reports[0]["position"] > last:
        return False
    return all(each["position"] != last or each["mark"] != mark for each in reports)


def _read(content: bytes) -> _Said:
    """Raises InvalidInput."""
    try:
        body = document(content)
        reports = [
            {"position": whole(each["position"]), "body": dict(each["body"]), "mark": _mark(each["body"])}
            for each in body["reports"]
        ]
        epoch = text(body["epoch"])
        known = body.get("open")
        open_now = None if known is None else frozenset(text(each) for each in known)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"The site's message about jobs cannot be read: {error!r}.") from error
    if not re.fullmatch(EPOCH_PATTERN, epoch):
        raise InvalidInput("The site's message about jobs has no epoch.")
    return _Said(epoch, reports, open_now)


def _mark(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


async def _candidates(reader: SeenReader, named: SiteName | None) -> AsyncGenerator[Sequence[Site], None]:
    """The least busy first, a page at a time: the first that can run a job gets it, and no more of the fleet is read
    than that takes."""
    if named is not None:
        site = await reader.site(named)
        if site is None:
            raise NotFound(f'There is no site "{named}".', hint="List them:  homeport sites list")
        yield [site]
        return
    open_jobs = await reader.counts(JOBS, JobFilter(states=OPEN), by=("site",))
    busy = {site: count for (site,), count in open_jobs.items()}
    cut = Cut(SITES_READ)
    while True:
        page = await reader.page(SITES, SiteFilter(), cut)
        yield [site for site in page.items if site.name not in busy]
        if page.next is None:
            break
        cut = Cut(SITES_READ, page.next)
    names = sorted(busy, key=lambda site: (busy[site], site))
    for start in range(0, len(names), SITES_READ):
        some = names[start : start + SITES_READ]
        found = (await reader.page(SITES, SiteFilter().within(some), WHOLE)).items
        yield sorted(found, key=lambda site: some.index(site.name))


def _by_site(nodes: Sequence[Node]) -> dict[SiteName, list[Node]]:
    found: dict[SiteName, list[Node]] = {}
    for node in nodes:
        found.setdefault(node.site, []).append(node)
    return found


async def _sites_having(reader: SeenReader, request: JobRequest) -> Mapping[str, Collection[SiteName]]:
    """The sites that have each secret of the job. Raises InvalidInput for one that none has."""
    having: dict[str, set[SiteName]] = {name: set() for name in request.spec.secrets.values()}
    if not having:
        return having
    for site, name in await reader.counts(SECRETS, SecretFilter(site=request.site), by=("site", "name")):
        if name in having:
            having[name].add(site)
    for variable, name in request.spec.secrets.items():
        if not having[name]:
            where = "no site has the" if request.site is None else f"site {request.site} has no"
            message = f'{where} secret "{name}".'
            hint = f"Set it first:  homeport secrets set {request.site or 'SITE'} {name}"
            raise InvalidInput(problems=[Problem(f"secrets.{variable}", message)], hint=hint)
    return having
