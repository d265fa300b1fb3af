"""Deploying and deleting. Both change Git and nothing else; sites do the rest."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from homeport.catalog.extension import read_policy
from homeport.central.api.rollouts import rollout_request
from homeport.central.parts import CentralParts
from homeport.core.durations import seconds_of
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import ON_EACH_NODE, USUAL_POLICY, Placement, Policy
from homeport.core.parameters import as_value
from homeport.core.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.fleet.apps import AppQuery
from homeport.fleet.charts import with_chart_warnings
from homeport.fleet.deploy import delete, deploy
from homeport.fleet.overview import find_deployment
from homeport.fleet.preview import DeploymentPlan, Plan, preview_delete, preview_deploy
from homeport.fleet.resolve import DeployRequest, Target
from homeport.fleet.rollback import roll_back
from homeport.fleet.rollouts import RolloutRequest, prepare_rollout, start_rollout
from homeport.fleet.scope import seen_by
from homeport.serving.bodies.deployments import Deploy, DeployedBody, PlacementBody, PolicyWish
from homeport.serving.bodies.plans import (
    PlanBody,
    PlannedComponent,
    PlannedDeployment,
    PlannedNode,
    PlannedParameter,
    PlannedWave,
    RefusedNode,
)
from homeport.serving.bodies.revisions import GoBack, WentBackBody
from homeport.serving.callers import allowed, check_sites
from homeport.serving.reading import DeploymentRef
from homeport.vocabulary import NodeId, PlacementMode, SiteName

PlanOnly = Annotated[bool, Query(alias="plan", description="Answer what would happen, and change nothing.")]
Deployer = Annotated[Caller, Depends(allowed("deployments.create"))]
Returner = Annotated[Caller, Depends(allowed("deployments.rollback"))]
Deleter = Annotated[Caller, Depends(allowed("deployments.delete"))]
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": PlanBody, "description": "With `plan=true`: what would happen."},
    202: {"model": DeployedBody, "description": "Pushed to Git; the sites are told."},
    404: {},
    409: {},
}


def deployments_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["deployments"])

    @router.post(
        "/api/v1/deployments",
        summary="Deploy an app to sites",
        status_code=202,
        response_model=None,
        responses=_ANSWERS,
    )
    async def deploy_app(caller: Deployer, body: Deploy, plan: PlanOnly = False) -> Response:
        """One commit for all sites, or for the first wave. A deployment of the same name at a site is updated."""
        request = _request(body)
        check_sites(caller, [target.site for target in request.targets])
        rollout = rollout_request(body, request, caller)
        if plan:
            return _json(await _plan(request, rollout, caller, central), 200)
        if rollout is not None:
            done = await start_rollout(rollout, caller, central.office)
        else:
            done = await deploy(request, caller, central.desk)
        answer = DeployedBody(
            rollout_id=done.rollout_id,
            deployment_ids=done.deployment_ids,
            commit=done.commit,
            unchanged=done.unchanged,
        )
        return _json(answer, 202)

    @router.delete(
        "/api/v1/deployments/{deployment_id}",
        summary="Delete a deployment",
        status_code=202,
        response_model=None,
        responses=_ANSWERS,
    )
    async def delete_deployment(caller: Deleter, deployment_id: DeploymentRef, plan: PlanOnly = False) -> Response:
        """Removes its file from Git; the site then removes what runs."""
        async with seen_by(caller, central.store).read() as reader:
            deployment_id = (await find_deployment(reader, deployment_id)).id
        if plan:
            return _json(_plan_body(await preview_delete(deployment_id, central.desk, central.clock.now())), 200)
        row, commit = await delete(deployment_id, caller, central.desk)
        return _json(DeployedBody(rollout_id=row.rollout_id or "", deployment_ids=[row.id], commit=commit), 202)

    @router.post(
        "/api/v1/deployments/{deployment_id}/rollback",
        summary="Go back to an older revision",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def roll_back_deployment(caller: Returner, deployment_id: DeploymentRef, body: GoBack) -> WentBackBody:
        """The older content becomes the file in Git again. Where Git cannot be written the site goes back at once,
        and Git follows when it can."""
        async with seen_by(caller, central.store).read() as reader:
            deployment_id = (await find_deployment(reader, deployment_id)).id
        done = await roll_back(
            deployment_id, body.to, reason=body.reason, caller=caller, desk=central.desk, clock=central.clock
        )
        return WentBackBody(
            deployment_id=done.deployment.id,
            revision=done.target.revision,
            app_version=done.target.app_version,
            commit=done.commit,
            site_told=done.site_told or done.commit is not None,
            waits=done.waits,
        )

    return router


def _request(body: Deploy) -> DeployRequest:
    if (body.app_id is None) == (body.app_name is None):
        raise InvalidInput(problems=[Problem("app_name", "name the app by app_name or by app_id, and not by both.")])
    return DeployRequest(
        targets=tuple(
            Target(SiteName(site.site_id), tuple(NodeId(node) for node in site.host_ids or ())) for site in body.sites
        ),
        app_id=body.app_id,
        app=AppQuery(body.category, body.app_name, body.version),
        profile=body.profile,
        name=body.name,
        parameters={name: as_value(value) for name, value in body.parameters.items()},
        placement=_placement(body.placement),
        policy=_policy(body.policy),
        remove_images=body.remove_images,
    )


def _placement(body: PlacementBody | None) -> Placement:
    if body is None:
        return ON_EACH_NODE
    mode = PlacementMode(body.mode)
    if (mode is PlacementMode.COUNT) != (body.count is not None):
        message = "is how many nodes, with the mode count and no other."
        raise InvalidInput(problems=[Problem("placement.count", message)])
    selector = parse_selector(body.selector, field="placement.selector")
    return Placement(mode=mode, count=body.count or 1, selector=selector)


def _policy(wish: PolicyWish | None) -> Policy:
    if wish is None:
        return USUAL_POLICY
    given = wish.model_dump(exclude_none=True)
    for key in ("backoff", "deadline"):
        if key in given and not seconds_of(given[key]):
            message = f'"{given[key]}" is no length of time; write 30s, 5m or 1h.'
            raise InvalidInput(problems=[Problem(f"policy.{key}", message)])
    return read_policy({"policy": given})


async def _plan(
    request: DeployRequest, rollout: RolloutRequest | None, caller: Caller, central: CentralParts
) -> PlanBody:
    prepared = None if rollout is None else await prepare_rollout(rollout, caller, central.office)
    if prepared is not None:
        request = replace(request, targets=prepared.resolved.targets)
    found = await preview_deploy(request, central.desk, central.clock.now())
    plan = _plan_body(await with_chart_warnings(found, central.store, central.charts))
    if prepared is None:
        return plan
    waves = [
        PlannedWave(number=number, size=str(wave.size), sites=sites)
        for number, (wave, sites) in enumerate(zip(prepared.intent.waves, prepared.waves, strict=True), 1)
    ]
    return plan.model_copy(update={"waves": waves})


def _json(body: DeployedBody | PlanBody, status: int) -> Response:
    return JSONResponse(body.model_dump(mode="json"), status_code=status)


def _plan_body(plan: Plan) -> PlanBody:
    return PlanBody(
        changes=plan.changes,
        deployments=[_planned(each) for each in plan.deployments],
        restarts=plan.count("replace"),
        deletions=plan.count("remove"),
    )


def _planned(plan: DeploymentPlan) -> PlannedDeployment:
    before, after = plan.before, plan.after
    app_name = after.app_name if after else before.app_name if before else ""
    return PlannedDeployment(
        site=plan.site,
        deployment_id=before.id if before else None,
        name=plan.name,
        action=plan.action,
        app_name=app_name,
        version_before=before.app_version if before else None,
        version_after=after.app_version if after else None,
        revision_before=before.revision if before else None,
        nodes=[
            PlannedNode(
                node_id=node_id,
                components=[
                    PlannedComponent(component=step.component, action=step.action, why=step.why) for step in steps
                ],
            )
            for node_id, steps in plan.nodes.items()
        ],
        refused=[RefusedNode(node_id=node_id, why=why) for node_id, why in plan.refused.items()],
        parameters=[PlannedParameter(name=name, before=was, after=is_) for name, was, is_ in plan.parameters],
        waits=plan.waits,
        warnings=plan.warnings,
    )
