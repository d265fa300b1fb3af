"""The older revisions of a deployment, and what differs between two of them. Central and sites serve both."""

from typing import Annotated

from fastapi import APIRouter, Query

from homeport.core.model.deployment import Revision
from homeport.fleet.overview import find_deployment
from homeport.fleet.revisions import choose_pair, compare
from homeport.serving.bodies.revisions import DiffBody, DifferenceBody, RevisionBody, RevisionsBody
from homeport.serving.reading import DeploymentReader, DeploymentRef, Reading
from homeport.vocabulary import Happening

Named = Annotated[str | None, Query(max_length=200, description="Digits of a revision, or a version.")]


def revisions_router(reading: Reading) -> APIRouter:
    router = APIRouter(tags=["deployments"])

    @router.get(
        "/api/v1/deployments/{deployment_id}/revisions",
        summary="The revisions of a deployment, newest first",
        responses={404: {}, 409: {}},
    )
    async def list_revisions(caller: DeploymentReader, deployment_id: DeploymentRef) -> RevisionsBody:
        async with reading.of(caller).read() as reader:
            row = await find_deployment(reader, deployment_id)
            kept, history = await reader.revisions(row.id), await reader.history(row.id)
            instances = await reader.instances([row.id])
        healthy = {entry.revision for entry in history if entry.happening is Happening.HEALTHY}
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
        caller: DeploymentReader, deployment_id: DeploymentRef, before: Named = None, after: Named = None
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

    return router
