"""Deploying and deleting. Both change only Git; sites do the rest."""

from dataclasses import replace
from typing import Any, Final

from fastapi import Response
from fastapi.responses import JSONResponse

from homeport.catalog.extension import placement_overrides, policy_overrides
from homeport.catalog.marks import Mark
from homeport.central.api.apps import new_app
from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import (
    NO_PLACEMENT_OVERRIDES,
    NO_POLICY_OVERRIDES,
    PlacementOverrides,
    PolicyOverrides,
)
from homeport.core.parameters import as_value
from homeport.core.update_values import RequestedValues
from homeport.core.values.durations import seconds_of
from homeport.core.values.selectors import parse_selector
from homeport.errors import InvalidInput, Problem
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.deploy import Deployed, ask_again, delete, deploy
from homeport.fleet.central.plans.charts import with_chart_warnings
from homeport.fleet.central.plans.images import with_images
from homeport.fleet.central.plans.preview import ComponentStep, DeploymentPlan, Plan, preview_delete, preview_deploy
from homeport.fleet.central.registering import unregistered
from homeport.fleet.central.resolve import DeployRequest, DeployTarget
from homeport.fleet.central.rollback import roll_back
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.scope import seen_by
from homeport.rollouts.routes import rollout_request
from homeport.rollouts.start import RolloutRequest, prepare_rollout, start_rollout
from homeport.serving.bodies.deployments import (
    Again,
    AskedBody,
    Deploy,
    DeployedBody,
    KeptBody,
    PlacementBody,
    PolicyBody,
)
from homeport.serving.bodies.plans import (
    PlanBody,
    PlannedComponent,
    PlannedDeployment,
    PlannedImage,
    PlannedNode,
    PlannedParameter,
    PlannedWave,
    RefusedNode,
)
from homeport.serving.bodies.revisions import GoBack, WentBackBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, PlanOnly, RemoveData, check_sites
from homeport.serving.routes.read import DeploymentRef
from homeport.serving.routing import Router
from homeport.vocabulary import NodeId, SiteName

_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": PlanBody, "description": "With `plan=true`: what would happen."},
    202: {"model": DeployedBody, "description": "Pushed to Git; the sites are notified."},
    404: {},
    409: {},
}


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/deployments"): Action("deployments.create", Level.OPERATOR, Scope.NAMED, Audit.WAIT),
    ("DELETE", "/api/v1/deployments/{deployment_id}"):
        Action("deployments.delete", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/deployments/{deployment_id}/rollback"):
        Action("deployments.rollback", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/deployments/{deployment_id}/retry"):
        Action("deployments.retry", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/deployments/{deployment_id}/restart"):
        Action("deployments.restart", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
}
# fmt: on


def deployments_routes(central: CentralParts) -> Routes:
    router = Router(tags=["deployments"])

    @router.post(
        "/api/v1/deployments",
        summary="Deploy an app to sites",
        status_code=202,
        response_model=None,
        responses=_ANSWERS,
    )
    async def deploy_app(caller: CallerOf, body: Deploy, plan: PlanOnly) -> Response:
        """One commit for all sites, or for the first wave. A deployment of the same name at a site is updated."""
        request = await _with_description(_request(body, plan=plan), body, caller, central)
        check_sites(caller, [target.site for target in request.targets])
        rollout = rollout_request(body, request, caller)
        if plan:
            return _json(await _plan(request, rollout, caller, central, compose=body.compose), 200)
        async with central.store.read() as reader:
            before = await reader.last_event_id()
        if rollout is not None:
            done = await start_rollout(rollout, caller, central)
        else:
            done = await deploy(request, caller, central.git_writer)
        return _json(_deployed_body(done, last_event_id=before), 202)

    @router.delete(
        "/api/v1/deployments/{deployment_id}",
        summary="Delete a deployment",
        status_code=202,
        response_model=None,
        responses=_ANSWERS,
    )
    async def delete_deployment(
        caller: CallerOf, deployment_id: DeploymentRef, plan: PlanOnly, remove_data: RemoveData
    ) -> Response:
        """Removes its file from Git; the site then removes what runs. Its data volumes stay unless `remove_data`."""
        async with seen_by(caller, central.store).read() as reader:
            deployment_id = (await find_deployment(reader, deployment_id)).id
            before = await reader.last_event_id()
        if plan:
            preview = await preview_delete(
                deployment_id, central.git_writer, central.clock.now(), remove_data=remove_data
            )
            return _json(_plan_body(preview), 200)
        row, commit = await delete(deployment_id, caller, central.git_writer, remove_data=remove_data)
        answer = DeployedBody(
            rollout_id=row.rollout_id or "", deployment_ids=[row.id], commit=commit, last_event_id=before
        )
        return _json(answer, 202)

    _rollback_route(router, central)
    _again_routes(router, central)
    return Routes(router, ACTIONS)


def _again_routes(router: Router, central: CentralParts) -> None:
    async def ask(caller: Caller, deployment_id: str, mark: Mark, body: Again) -> AskedBody:
        async with seen_by(caller, central.store).read() as reader:
            deployment_id = (await find_deployment(reader, deployment_id)).id
            before = await reader.last_event_id()
        done = await ask_again(deployment_id, mark, body.reason, caller, central.git_writer)
        return AskedBody(
            deployment_id=done.deployment.id, revision=done.revision, commit=done.commit, last_event_id=before
        )

    @router.post(
        "/api/v1/deployments/{deployment_id}/retry",
        summary="Retry what has failed or was rolled back",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def retry_deployment(caller: CallerOf, deployment_id: DeploymentRef, body: Again) -> AskedBody:
        """Marks its file in Git, which makes another revision of the same content: all attempts start again."""
        return await ask(caller, deployment_id, "retry", body)

    @router.post(
        "/api/v1/deployments/{deployment_id}/restart",
        summary="Restart the containers of a deployment in place",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def restart_deployment(caller: CallerOf, deployment_id: DeploymentRef, body: Again) -> AskedBody:
        """Marks its file in Git; every node then replaces each component, and its data stays."""
        return await ask(caller, deployment_id, "restart", body)


def _rollback_route(router: Router, central: CentralParts) -> None:
    @router.post(
        "/api/v1/deployments/{deployment_id}/rollback",
        summary="Roll back to an older revision",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def roll_back_deployment(caller: CallerOf, deployment_id: DeploymentRef, body: GoBack) -> WentBackBody:
        """The older content becomes the file in Git again. While Git cannot be written the site rolls back at once,
        and Git is updated later."""
        async with seen_by(caller, central.store).read() as reader:
            deployment_id = (await find_deployment(reader, deployment_id)).id
            before = await reader.last_event_id()
        done = await roll_back(
            deployment_id,
            body.to,
            reason=body.reason,
            caller=caller,
            git_writer=central.git_writer,
            clock=central.clock,
        )
        return WentBackBody(
            deployment_id=done.deployment.id,
            revision=done.target.revision,
            app_version=done.target.app_version,
            commit=done.commit,
            site_told=done.is_site_informed or done.commit is not None,
            waits=done.waits,
            last_event_id=before,
        )


async def _with_description(
    request: DeployRequest, body: Deploy, caller: Caller, central: CentralParts
) -> DeployRequest:
    if body.description is None:
        return request
    record = await unregistered(new_app(body), caller, store=central.store, clock=central.clock, ids=central.ids)
    return replace(request, record=record)


def _request(body: Deploy, *, plan: bool) -> DeployRequest:
    if body.description is not None and not plan:
        message = "is for a plan: add the app with  POST /api/v1/apps  first."
        raise InvalidInput(problems=[Problem("description", message)])
    if body.compose is not None and body.description is None:
        raise InvalidInput(problems=[Problem("compose", "is for a plan, with the description of its app.")])
    if (body.app_id is None) == (body.app_name is None):
        raise InvalidInput(problems=[Problem("app_name", "name the app by app_name or by app_id, and not by both.")])
    return DeployRequest(
        targets=tuple(
            DeployTarget(
                SiteName(site.site_id),
                None if site.host_ids is None else tuple(NodeId(node) for node in site.host_ids),
                site.device_id,
            )
            for site in body.sites
        ),
        app_id=body.app_id,
        app=AppQuery(body.category, body.app_name, body.version),
        name=body.name,
        requested=RequestedValues(
            profile=body.profile,
            parameters={name: as_value(value) for name, value in body.parameters.items()},
            placement=_placement(body.placement),
            policy=_policy(body.policy),
            remove_images=body.remove_images,
            reset_values=body.reset_values,
        ),
    )


def _placement(body: PlacementBody | None) -> PlacementOverrides:
    if body is None:
        return NO_PLACEMENT_OVERRIDES
    if (body.mode == "count") != (body.count is not None):
        message = "is how many nodes, with the mode count and no other."
        raise InvalidInput(problems=[Problem("placement.count", message)])
    if body.selector is not None:
        parse_selector(body.selector, field="placement.selector")
    return placement_overrides({"placement": body.model_dump(exclude_none=True)})


def _policy(body: PolicyBody | None) -> PolicyOverrides:
    if body is None:
        return NO_POLICY_OVERRIDES
    given = body.model_dump(exclude_none=True)
    for key in ("backoff", "deadline"):
        if key in given and not seconds_of(given[key]):
            message = f'"{given[key]}" is not a valid duration; write 30s, 5m or 1h.'
            raise InvalidInput(problems=[Problem(f"policy.{key}", message)])
    if "on_unhealthy" in given:
        given["onUnhealthy"] = given.pop("on_unhealthy")
    return policy_overrides({"policy": given})


async def _plan(
    request: DeployRequest,
    rollout: RolloutRequest | None,
    caller: Caller,
    central: CentralParts,
    *,
    compose: str | None,
) -> PlanBody:
    prepared = None if rollout is None else await prepare_rollout(rollout, caller, central)
    if prepared is not None:
        request = replace(request, targets=prepared.resolved.targets)
    found = await preview_deploy(request, central.git_writer, central.clock.now())
    found = await with_images(found, central.images, compose=compose)
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


def _deployed_body(done: Deployed, *, last_event_id: int) -> DeployedBody:
    return DeployedBody(
        rollout_id=done.rollout_id,
        deployment_ids=done.deployment_ids,
        commit=done.commit,
        unchanged=done.unchanged,
        kept=[KeptBody(site=site, kept=values.kept, dropped=values.dropped) for site, values in done.kept],
        last_event_id=last_event_id,
    )


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
        device=after.device if after else None,
        version_before=before.app_version if before else None,
        version_after=after.app_version if after else None,
        revision_before=before.revision if before else None,
        nodes=[
            PlannedNode(
                node_id=node_id,
                components=[_planned_component(step) for step in steps],
            )
            for node_id, steps in plan.nodes.items()
        ],
        refused=[RefusedNode(node_id=node_id, why=why) for node_id, why in plan.refused.items()],
        parameters=[PlannedParameter(name=name, before=was, after=is_) for name, was, is_ in plan.parameters],
        kept=plan.kept,
        dropped=plan.dropped,
        waits=plan.waits,
        warnings=plan.warnings,
    )


def _planned_component(step: ComponentStep) -> PlannedComponent:
    images = None
    if step.images is not None:
        images = [PlannedImage(service=each.service, before=each.before, after=each.after) for each in step.images]
    return PlannedComponent(
        component=step.component, action=step.action, why=step.why, images=images, pull_bytes=step.pull_bytes
    )
