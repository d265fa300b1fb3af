"""Rollback at the site itself, with or without central and Git."""

from typing import Final

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.scope import seen_by
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.maintenance import older_revision, roll_back_to
from homeport.ports import Store
from homeport.serving.bodies.revisions import GoBack, WentBackBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import DeploymentRef
from homeport.serving.routing import Router

# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/deployments/{deployment_id}/rollback"):
        Action("deployments.rollback", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
}
# fmt: on


def site_deployments_routes(conductor: Conductor, store: Store) -> Routes:
    router = Router(tags=["deployments"])

    @router.post(
        "/api/v1/deployments/{deployment_id}/rollback",
        summary="Roll back to an older revision, until Git has another one",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def roll_back(
        caller: CallerOf,
        deployment_id: DeploymentRef,
        body: GoBack,
    ) -> WentBackBody:
        """The site acts at once; central writes it to Git as soon as both can be reached."""
        async with seen_by(caller, store).read() as reader:
            row = await find_deployment(reader, deployment_id)
            before = await reader.last_event_id()
        target = await older_revision(store, conductor.memory, row.id, body.to)
        await conductor.alter(roll_back_to(target, reason=body.reason, author=caller.name))
        return WentBackBody(
            deployment_id=row.id,
            revision=target.revision,
            app_version=target.app_version,
            commit=None,
            site_told=True,
            last_event_id=before,
        )

    return Routes(router, ACTIONS)
