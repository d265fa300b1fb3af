"""The older revisions of a deployment, and the differences between two of them. Central and sites serve both."""

from typing import Annotated, Final

from fastapi import Query

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.deployment import Revision
from homeport.fleet.shared.overview import find_deployment
from homeport.fleet.shared.revisions import choose_pair, compare
from homeport.serving.bodies.revisions import DiffBody, DifferenceBody, RevisionBody, RevisionsBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import DeploymentRef, Reading
from homeport.serving.routing import Router
from homeport.vocabulary import Trigger

Named = Annotated[str | None, Query(max_length=200, description="Digits of a revision, or a version.")]


_READ: Final = Action("deployments.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/deployments/{deployment_id}/revisions"): _READ,
    ("GET", "/api/v1/deployments/{deployment_id}/diff"): _READ,
}
# fmt: on


def revisions_routes(reading: Reading) -> Routes:
    router = Router(tags=["deployments"])

    @router.get(
        "/api/v1/deployments/{deployment_id}/revisions",
        summary="The revisions of a deployment, newest first",
        responses={404: {}, 409: {}},
    )
    async def list_revisions(caller: CallerOf, deployment_id: DeploymentRef) -> RevisionsBody:
        async with reading.of(caller).read() as reader:
            row = await find_deployment(reader, deployment_id)
            kept, history = await reader.revisions(row.id), await reader.history(row.id)
            instances = await reader.instances([row.id])
        healthy = {entry.revision for entry in history if entry.trigger is Trigger.HEALTHY}
        rejected = {item.rejected_revision for item in instances}

        def body(each: Revision) -> RevisionBody:
            return RevisionBody(
                revision=each.revision,
                app_version=each.app_version,
                commit=each.commit,
                author=each.author,
                at=each.at,
                wanted=row.wanted and each.revision == row.revision,
                nodes=[item.node_id for item in instances if item.running_revision == each.revision],
                was_healthy=each.revision in healthy,
                rolled_back=each.revision in rejected,
            )

        return RevisionsBody(deployment_id=row.id, revisions=[body(each) for each in kept])

    @router.get(
        "/api/v1/deployments/{deployment_id}/diff",
        summary="What differs between two revisions of a deployment",
        responses={404: {}, 409: {}},
    )
    async def diff(
        caller: CallerOf, deployment_id: DeploymentRef, before: Named = None, after: Named = None
    ) -> DiffBody:
        async with reading.of(caller).read() as reader:
            row = await find_deployment(reader, deployment_id)
            kept = await reader.revisions(row.id)
        compared = compare(*choose_pair(kept, before, after, current=row.revision, name=row.name))
        return DiffBody(
            deployment_id=row.id,
            before=compared.before.revision,
            after=compared.after.revision,
            changes=[
                DifferenceBody(path=each.path, before=each.before, after=each.after) for each in compared.changes
            ],
            text=compared.text,
        )

    return Routes(router, ACTIONS)
