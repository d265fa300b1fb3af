"""Pipelines over HTTP."""

from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query, Response
from starlette.responses import JSONResponse

from homeport.catalog.pipeline import pipeline_schema
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.pipelines.limits import NAME_PATTERN
from homeport.core.pipelines.why import why_run
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.shared.answers.why import Why
from homeport.fleet.shared.overview import find_site
from homeport.fleet.shared.scope import seen_by
from homeport.jobs.ports import Jobs
from homeport.pipelines.bodies import (
    CheckedBody,
    CheckPipeline,
    PipelineBody,
    PipelineDetailBody,
    PipelinesBody,
    RunBody,
    RunDetailBody,
    RunsBody,
    SavePipeline,
    StartRun,
    StepResultBody,
    checked_body,
    pipeline_body,
    pipeline_detail,
    run_body,
    run_detail,
    step_results,
)
from homeport.pipelines.live import with_live_logs
from homeport.pipelines.reading import readable
from homeport.pipelines.service import WAIT_SECONDS_MAX, PipelineRunRequest, Pipelines, check_site, owner_of
from homeport.ports import PIPELINE_RUNS, PIPELINES, PipelineFilter, RunFilter
from homeport.serving.bodies.body import SiteNameText
from homeport.serving.bodies.plans import WhyBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.serving.to_bodies import why_body
from homeport.vocabulary import RunId, RunState, SiteName

RunRef = Annotated[
    str,
    Path(min_length=1, max_length=36, pattern=r"^[0-9a-f-]+$", description="The id, or a prefix that fits only one."),
]
PipelineName = Annotated[str, Path(max_length=63, pattern=NAME_PATTERN)]
_READ: Final = Action("pipelines.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
_CANCEL: Final = Action("pipelines.cancel", Level.OPERATOR, Scope.SEEN, Audit.WAIT)
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {404: {}, 409: {}}
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/pipelines"): _READ,
    ("POST", "/api/v1/pipelines"): Action("pipelines.save", Level.OPERATOR, Scope.NAMED, Audit.WAIT),
    ("GET", "/api/v1/pipelines/{name}"): _READ,
    ("DELETE", "/api/v1/pipelines/{name}"): Action("pipelines.remove", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/pipelines/{name}/pause"): Action("pipelines.pause", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/pipelines/{name}/resume"): Action("pipelines.resume", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("GET", "/api/v1/pipeline-schema"): Action("pipelines.read", Level.VIEWER, Scope.NONE, Audit.NONE),
    ("POST", "/api/v1/pipeline-checks"): Action("pipelines.read", Level.VIEWER, Scope.NONE, Audit.NONE),
    ("GET", "/api/v1/pipeline-runs"): _READ,
    ("POST", "/api/v1/pipeline-runs"): Action("pipelines.run", Level.OPERATOR, Scope.NAMED, Audit.WAIT),
    ("GET", "/api/v1/pipeline-runs/{run}"): _READ,
    ("GET", "/api/v1/pipeline-runs/{run}/why"): _READ,
    ("GET", "/api/v1/pipeline-runs/{run}/steps/{step}"): _READ,
    ("POST", "/api/v1/pipeline-runs/{run}/cancel"): _CANCEL,
}
# fmt: on


def pipelines_routes(central: CentralPlatform, pipelines: Pipelines, jobs: Jobs) -> Routes:
    router = Router(tags=["pipelines"])
    _add_runs(router, central, pipelines)
    _add_steps(router, central, pipelines, jobs)
    _add_saved(router, central, pipelines)

    @router.get("/api/v1/pipeline-schema", summary="The JSON Schema of a pipeline's file")
    async def read_pipeline_schema() -> JSONResponse:
        return JSONResponse(pipeline_schema())

    @router.post("/api/v1/pipeline-checks", summary="Check a pipeline's file", responses={422: {}})
    async def check_pipeline(body: CheckPipeline) -> CheckedBody:
        """Every problem with its field and line. Nothing is stored."""
        return checked_body(await pipelines.checked(body.source))

    return Routes(router, ACTIONS)


def _add_runs(router: Router, central: CentralPlatform, pipelines: Pipelines) -> None:
    @router.post(
        "/api/v1/pipeline-runs", summary="Run a pipeline", status_code=201, responses={404: {}, 409: {}, 422: {}}
    )
    async def start_pipeline_run(caller: CallerOf, body: StartRun) -> RunBody:
        """It is durable when this answers. Ask again with the same `id` if the answer is lost."""
        if (body.source is None) == (body.pipeline is None):
            raise InvalidInput(problems=[Problem("source", "give either the file or the name of a saved pipeline.")])
        source = body.source or (await pipelines.saved(body.pipeline or "", caller)).source
        request = PipelineRunRequest(source, body.inputs, id=None if body.id is None else RunId(body.id))
        return run_body(await pipelines.start(request, owner_of(caller)))

    @router.get("/api/v1/pipeline-runs", summary="List runs, the newest first", response_model=RunsBody)
    async def list_pipeline_runs(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(PIPELINE_RUNS, RunBody))],
        pipeline: Annotated[str | None, Query(max_length=63)] = None,
        site: SiteNameText | None = None,
        state: Annotated[list[RunState] | None, Query(max_length=5)] = None,
    ) -> Response:
        where = RunFilter(
            pipeline=pipeline,
            site=None if site is None else SiteName(site),
            states=None if not state else frozenset(state),
        )
        async with seen_by(caller, central.store).read() as reader:
            found = await reader.page(PIPELINE_RUNS, where, page.cut)
            if not found.items and where.site is not None:
                await find_site(reader, where.site)
        return page.answer("runs", [run_body(run) for run in found.items], found.next)

    @router.get("/api/v1/pipeline-runs/{run}", summary="Show a run with its steps", responses=_RESPONSES)
    async def show_pipeline_run(
        caller: CallerOf,
        run: RunRef,
        after: Annotated[int | None, Query(ge=0, le=2**53, description="The version that is known already.")] = None,
        wait_seconds: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX)] = 0.0,
    ) -> RunDetailBody:
        """With `after`, waits for a change of the run, for `wait_seconds` at most."""
        found = await pipelines.find(run, caller)
        if after is not None and wait_seconds:
            found = await pipelines.changed(found, after, seconds=wait_seconds)
        return await central.in_thread(run_detail, found)

    @router.get(
        "/api/v1/pipeline-runs/{run}/why", summary="Why a run is as it is, step by step", responses=_RESPONSES
    )
    async def explain_pipeline_run(caller: CallerOf, run: RunRef) -> WhyBody:
        found = await pipelines.find(run, caller)
        return why_body(Why("run", f"{found.id} of {found.pipeline}", found.state.value, why_run(found)))

    @router.post("/api/v1/pipeline-runs/{run}/cancel", summary="Cancel a run", responses=_RESPONSES)
    async def cancel_pipeline_run(caller: CallerOf, run: RunRef) -> RunBody:
        """What is under way is stopped first; a run that has ended stays as it is."""
        found = await pipelines.find(run, caller)
        check_site(found.site, caller, found.pipeline)
        return run_body(await pipelines.cancel(found, caller.name))


def _add_steps(router: Router, central: CentralPlatform, pipelines: Pipelines, jobs: Jobs) -> None:
    @router.get("/api/v1/pipeline-runs/{run}/steps/{step}", summary="Show what a step has left", responses=_RESPONSES)
    async def show_pipeline_step(
        caller: CallerOf, run: RunRef, step: Annotated[str, Path(max_length=40, pattern=r"^[a-z0-9_]+$")]
    ) -> StepResultBody:
        """The output and the log of each of its items. For jobs under way, what they have printed so far."""
        found = await pipelines.find(run, caller)
        names = [each.name for each in found.steps]
        if step not in names:
            known = f"It has {', '.join(names)}." if names else "It has not begun."
            raise NotFound(f'Run {found.id[:8]} has no step "{step}".', hint=known)
        async with seen_by(caller, central.store).read() as reader:
            results = await reader.pipeline_results(found)
        pipeline = await central.in_thread(readable, found.source)
        wanted = None if pipeline is None else pipeline.step(step)
        return step_results(found.step(step), await with_live_logs(jobs, found, wanted, results, caller))


def _add_saved(router: Router, central: CentralPlatform, pipelines: Pipelines) -> None:
    @router.get("/api/v1/pipelines", summary="List saved pipelines", response_model=PipelinesBody)
    async def list_pipelines(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(PIPELINES, PipelineBody))],
        site: SiteNameText | None = None,
    ) -> Response:
        where = PipelineFilter(site=None if site is None else SiteName(site))
        async with seen_by(caller, central.store).read() as reader:
            found = await reader.page(PIPELINES, where, page.cut)
        bodies = await central.in_thread(lambda: [pipeline_body(each) for each in found.items])
        return page.answer("pipelines", bodies, found.next)

    @router.post("/api/v1/pipelines", summary="Save a pipeline", responses={409: {}, 422: {}})
    async def save_pipeline(caller: CallerOf, body: SavePipeline) -> PipelineBody:
        """Under its own name: for its webhook and schedule, and for other pipelines."""
        saved = await pipelines.save(body.source, caller, is_paused=body.paused)
        return await central.in_thread(pipeline_body, saved)

    @router.get("/api/v1/pipelines/{name}", summary="Show a saved pipeline", responses=_RESPONSES)
    async def show_pipeline(caller: CallerOf, name: PipelineName) -> PipelineDetailBody:
        return await central.in_thread(pipeline_detail, await pipelines.saved(name, caller))

    @router.delete(
        "/api/v1/pipelines/{name}", summary="Remove a saved pipeline", status_code=204, responses=_RESPONSES
    )
    async def remove_pipeline(caller: CallerOf, name: PipelineName) -> None:
        """Its runs stay."""
        await pipelines.remove(name, caller)

    @router.post(
        "/api/v1/pipelines/{name}/pause", summary="Start no runs by schedule or webhook", responses=_RESPONSES
    )
    async def pause_pipeline(caller: CallerOf, name: PipelineName) -> PipelineBody:
        """Runs that are under way go on, and it can still be run by hand and by other pipelines."""
        return await central.in_thread(pipeline_body, await pipelines.set_paused(name, caller, is_paused=True))

    @router.post(
        "/api/v1/pipelines/{name}/resume", summary="Start runs by schedule and webhook again", responses=_RESPONSES
    )
    async def resume_pipeline(caller: CallerOf, name: PipelineName) -> PipelineBody:
        """It runs at the next time of its schedule; times that passed meanwhile are not made up for."""
        return await central.in_thread(pipeline_body, await pipelines.set_paused(name, caller, is_paused=False))
