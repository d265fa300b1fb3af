"""Going back at the site itself, with or without central and Git."""

from typing import Annotated

from fastapi import APIRouter, Depends

from homeport.core.model.caller import Caller
from homeport.fleet.conductor import Conductor
from homeport.fleet.overview import find_deployment
from homeport.fleet.scope import seen_by
from homeport.ports import Store
from homeport.serving.bodies import GoBack, WentBackBody
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
        pin = await conductor.pin(row.id, body.to, reason=body.reason, author=caller.name)
        desired = conductor.memory.desired(row.id)
        version = row.app_version if desired is None else desired.app_version
        return WentBackBody(
            deployment_id=row.id, revision=pin.revision, app_version=version, commit=None, site_told=True
        )

    return router
