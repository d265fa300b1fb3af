"""Going back at the site itself, with or without central and Git."""

from typing import Annotated

from fastapi import APIRouter, Depends

from homeport.core.model.caller import Caller
from homeport.fleet.conductor import Conductor
from homeport.fleet.maintenance import go_back, older_revision
from homeport.fleet.overview import find_deployment
from homeport.fleet.scope import seen_by
from homeport.ports import Store
from homeport.serving.bodies.revisions import GoBack, WentBackBody
from homeport.serving.callers import allowed
from homeport.serving.reading import DeploymentRef


def site_deployments_router(conductor: Conductor, store: Store) -> APIRouter:
    router = APIRouter(tags=["deployments"])

    @router.post(
        "/api/v1/deployments/{deployment_id}/rollback",
        summary="Go back to an older revision, until Git has another one",
        status_code=202,
        responses={404: {}, 409: {}},
    )
    async def roll_back(
        caller: Annotated[Caller, Depends(allowed("deployments.rollback"))],
        deployment_id: DeploymentRef,
        body: GoBack,
    ) -> WentBackBody:
        """The site acts at once; central writes it to Git as soon as both can be reached."""
        async with seen_by(caller, store).read() as reader:
            row = await find_deployment(reader, deployment_id)
        target = await older_revision(store, conductor.memory, row.id, body.to)
        await conductor.alter(go_back(target, reason=body.reason, author=caller.name))
        return WentBackBody(
            deployment_id=row.id,
            revision=target.revision,
            app_version=target.app_version,
            commit=None,
            site_told=True,
        )

    return router
