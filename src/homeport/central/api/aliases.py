"""The addresses and shapes of the original orchestrator's API, for clients that were written for it.

Each uses the same use-case as our own route; `docs/reference/other-names.md` maps them.
"""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Body as FromBody
from pydantic import Field

from homeport import __version__
from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.lifecycle.phases import Phase, phase_of
from homeport.core.model.instance import Instance
from homeport.fleet.central.apps import AppQuery, find_app, remove_app
from homeport.fleet.shared.overview import DeploymentView, find_deployment, view_deployments
from homeport.fleet.shared.scope import ReadOnly
from homeport.serving.bodies.body import Body
from homeport.serving.bodies.health import HealthBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import SSE_RESPONSES, DeploymentRef, Reading
from homeport.serving.routing import Router
from homeport.serving.server.sse import EventStream, follow
from homeport.vocabulary import DeploymentId, State

# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/healthz"): Action("health.read", Level.OPEN, Scope.NONE, Audit.NONE),
    ("DELETE", "/api/v1/apps"): Action("apps.remove", Level.OPERATOR, Scope.FLEET, Audit.WAIT),
    ("GET", "/api/v1/deployments/{deployment_id}/status"):
        Action("deployments.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
    ("GET", "/api/v1/deployments/{deployment_id}/stream"):
        Action("events.read", Level.VIEWER, Scope.SEEN, Audit.NONE),
}
# fmt: on


class AppSelectorBody(Body):
    app_name: str = Field(min_length=1, max_length=200)
    category: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=200)


class AppDeletedBody(Body):
    status: str
    id: str
    name: str
    version: str
    category: str


class HostStatusBody(Body):
    host_id: str
    state: State
    error_code: str | None
    error_message: str | None


class StatusBody(Body):
    id: str
    deployment_id: str
    site_id: str
    state: State
    phase: Phase
    """The state in the coarser terms of the original orchestrator."""
    error_code: str | None
    error_message: str | None
    hosts: Sequence[HostStatusBody]
    created_at: datetime
    updated_at: datetime


def alias_routes(central: CentralParts, reading: Reading) -> Routes:
    router = Router(tags=["aliases"])

    @router.get("/api/v1/healthz", summary="The same as /healthz")
    async def healthz_below_api() -> HealthBody:
        return HealthBody(status="ok", role="central", version=__version__)

    @router.delete("/api/v1/apps", summary="Remove an app by its name", responses={404: {}, 409: {}})
    async def remove_app_by_name(caller: CallerOf, body: Annotated[AppSelectorBody, FromBody()]) -> AppDeletedBody:
        """The newest version when none is given."""
        async with central.store.read() as reader:
            app = await find_app(reader, app_id=None, query=AppQuery(body.category, body.app_name, body.version))
        await remove_app(app.id, caller, store=central.store, clock=central.clock)
        return AppDeletedBody(
            status="deleted", id=app.id, name=app.app_name, version=app.version, category=app.category
        )

    @router.get(
        "/api/v1/deployments/{deployment_id}/status",
        summary="The state of one deployment",
        responses={404: {}, 409: {}},
    )
    async def show_status(caller: CallerOf, deployment_id: DeploymentRef) -> StatusBody:
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
            (view,) = await view_deployments(reader, [found], reading.reachability, reading.clock.now())
        return _status(view)

    @router.get(
        "/api/v1/deployments/{deployment_id}/stream",
        summary="What happens to one deployment until it is settled, as unnamed events",
        status_code=200,
        response_class=EventStream,
        responses={**SSE_RESPONSES, 404: {}, 409: {}},
    )
    async def stream_status(caller: CallerOf, deployment_id: DeploymentRef) -> EventStream:
        async with reading.of(caller).read() as reader:
            found = await find_deployment(reader, deployment_id)
        return EventStream(_unnamed(reading.of(caller), found.id), reading.stopping)

    return Routes(router, ACTIONS)


def _status(view: DeploymentView) -> StatusBody:
    deployment = view.deployment
    hosts = [_host(each.instance) for each in view.instances]
    failed = next((host for host in hosts if host.error_code is not None), None)
    return StatusBody(
        id=deployment.id,
        deployment_id=deployment.id,
        site_id=deployment.site,
        state=deployment.state,
        phase=phase_of(deployment.state, accepted=bool(hosts)),
        error_code=None if failed is None else failed.error_code,
        error_message=deployment.problem if failed is None else failed.error_message,
        hosts=hosts,
        created_at=deployment.created_at,
        updated_at=deployment.updated_at,
    )


def _host(instance: Instance) -> HostStatusBody:
    failure = instance.failure
    return HostStatusBody(
        host_id=instance.node_id,
        state=instance.state,
        error_code=None if failure is None else failure.code,
        error_message=None if failure is None else failure.message,
    )


async def _unnamed(store: ReadOnly, deployment_id: DeploymentId) -> AsyncIterator[bytes]:
    """First its current state, then each of its events; ends when the deployment has settled."""
    async with store.read() as reader:
        cursor = await reader.last_event_id()
        now = await reader.deployment(deployment_id)
    if now is not None:
        yield _line(deployment_id, now.updated_at, now.site, f"{now.name} is {now.state}", now.state.value)
    async for events, settled in follow(store, cursor, deployment_id, until_settled=True):
        for event in events:
            yield _line(deployment_id, (new := event.event).at, new.site, new.message, new.data.get("state"))
        if settled:
            return


def _line(deployment_id: str, at: datetime, site: str | None, message: str, status: Any) -> bytes:
    body = {
        "deployment_id": deployment_id,
        "timestamp": at.isoformat(),
        "site_id": site,
        "message": message,
        "status": status,
    }
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()
