"""Jobs over HTTP, the same at central and at a site."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Response

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.jobs.why import why_job
from homeport.errors import NotFound
from homeport.fleet.shared.answers.why import Why
from homeport.fleet.shared.overview import find_site
from homeport.fleet.shared.scope import seen_by
from homeport.jobs.bodies import (
    JobBody,
    JobDetailBody,
    JobsBody,
    OutputBody,
    SubmitJob,
    detail_body,
    job_body,
    output_body,
    request_of,
)
from homeport.jobs.ports import WAIT_SECONDS_MAX, Jobs
from homeport.ports import JOBS, JobFilter, Store
from homeport.serving.bodies.body import NodeIdText, SiteNameText
from homeport.serving.bodies.plans import WhyBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, check_sites
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.serving.to_bodies import why_body
from homeport.vocabulary import JobState, NodeId, SiteName

JobRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="The id, or a prefix of it that fits only one.",
    ),
]
SiteQuery = Annotated[SiteNameText | None, Query(description="Where several sites have a job of this id.")]
Position = Annotated[int, Query(ge=0, le=2**53)]
READ: Final = Action("jobs.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
SUBMIT: Final = Action("jobs.submit", Level.OPERATOR, Scope.NAMED, Audit.WAIT)
CANCEL: Final = Action("jobs.cancel", Level.OPERATOR, Scope.SEEN, Audit.WAIT)
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {404: {}, 409: {}}
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/jobs"): READ,
    ("POST", "/api/v1/jobs"): SUBMIT,
    ("GET", "/api/v1/jobs/{job}"): READ,
    ("GET", "/api/v1/jobs/{job}/why"): READ,
    ("GET", "/api/v1/jobs/{job}/output"): READ,
    ("GET", "/api/v1/jobs/{job}/artifacts/{path:path}"): READ,
    ("POST", "/api/v1/jobs/{job}/cancel"): CANCEL,
}
# fmt: on


def jobs_routes(jobs: Jobs, store: Store) -> Routes:
    router = Router(tags=["jobs"])

    @router.post("/api/v1/jobs", summary="Submit a job", status_code=201, responses={409: {}, 422: {}, 503: {}})
    async def submit_job(caller: CallerOf, body: SubmitJob) -> JobBody:
        """It is durable when this answers. Submit it again with the same `id` if the answer is lost."""
        request = request_of(body)
        if request.site is not None:
            check_sites(caller, [request.site])
        return job_body(await jobs.submit(request, caller))

    @router.get("/api/v1/jobs", summary="List jobs, the newest first", response_model=JobsBody)
    async def list_jobs(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(JOBS, JobBody))],
        *,
        site: SiteNameText | None = None,
        node: NodeIdText | None = None,
        state: Annotated[list[JobState] | None, Query(max_length=6)] = None,
        contains: Annotated[
            str | None,
            Query(max_length=200, description="Only those whose `id@site` contains this text; case is ignored."),
        ] = None,
    ) -> Response:
        where = JobFilter(
            contains=contains,
            site=None if site is None else SiteName(site),
            node=None if node is None else NodeId(node),
            states=None if not state else frozenset(state),
        )
        async with seen_by(caller, store).read() as reader:
            found = await reader.page(JOBS, where, page.cut)
            if not found.items and where.site is not None:
                await find_site(reader, where.site)
        bodies: Sequence[JobBody] = [job_body(job) for job in found.items]
        return page.answer("jobs", bodies, found.next)

    @router.get("/api/v1/jobs/{job}", summary="Show one job with the end of its output", responses=_RESPONSES)
    async def show_job(caller: CallerOf, job: JobRef, site: SiteQuery = None) -> JobDetailBody:
        found = await jobs.find(job, caller, None if site is None else SiteName(site))
        async with seen_by(caller, store).read() as reader:
            output = await reader.job_file(found, "") or b""
        return detail_body(await jobs.shown(found), output.decode(errors="replace"))

    @router.get("/api/v1/jobs/{job}/why", summary="Why a job is as it is, decision by decision", responses=_RESPONSES)
    async def explain_job(caller: CallerOf, job: JobRef, site: SiteQuery = None) -> WhyBody:
        found = await jobs.shown(await jobs.find(job, caller, None if site is None else SiteName(site)))
        return why_body(Why("job", f"{found.id}@{found.site}", found.state.value, why_job(found)))

    @router.post("/api/v1/jobs/{job}/cancel", summary="Cancel a job", responses=_RESPONSES)
    async def cancel_job(caller: CallerOf, job: JobRef, site: SiteQuery = None) -> JobBody:
        """A job that runs is stopped by its node first; one that has ended stays as it is."""
        found = await jobs.find(job, caller, None if site is None else SiteName(site))
        check_sites(caller, [found.site])
        return job_body(await jobs.cancel(found, caller))

    _add_output(router, jobs, store)
    return Routes(router, ACTIONS)


def _add_output(router: Router, jobs: Jobs, store: Store) -> None:
    """What a job prints and leaves."""

    @router.get("/api/v1/jobs/{job}/output", summary="Follow the output of a job", responses=_RESPONSES)
    async def read_job_output(
        caller: CallerOf,
        job: JobRef,
        *,
        site: SiteQuery = None,
        after: Position = 0,
        generation: Position = 0,
        wait_seconds: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = 0.0,
    ) -> OutputBody:
        """What it has printed after a position. Waits for more, for `wait_seconds` at most; repeat it until it is
        `complete`."""
        found = await jobs.find(job, caller, None if site is None else SiteName(site))
        part = await jobs.output(found, after=after, generation=generation, wait_seconds=wait_seconds)
        return output_body(part)

    @router.get("/api/v1/jobs/{job}/artifacts/{path:path}", summary="Download a file of a job", responses=_RESPONSES)
    async def read_job_artifact(
        caller: CallerOf, job: JobRef, path: Annotated[str, Path(max_length=600)], site: SiteQuery = None
    ) -> Response:
        found = await jobs.find(job, caller, None if site is None else SiteName(site))
        names = [file.path for file in found.files if path in (file.path, file.path.lstrip("/"))]
        async with seen_by(caller, store).read() as reader:
            content = await reader.job_file(found, names[0]) if names else None
        if content is None:
            kept = ", ".join(file.path for file in found.files) or "none"
            raise NotFound(f'Job {found.id} has no artifact "{path}".', hint=f"It has {kept}.")
        # Never shown as a page of this origin, whatever the job has written.
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type="application/octet-stream", headers=headers)
