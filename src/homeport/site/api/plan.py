"""What the site would do next, and everything it would leave alone."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends

from homeport.core.model.caller import Caller
from homeport.fleet.conductor import Conductor
from homeport.serving.bodies.body import Body
from homeport.serving.callers import allowed
from homeport.vocabulary import Happening


class MoveBody(Body):
    deployment_id: str
    name: str
    node_id: str
    action: Literal["add", "update", "remove", "wait", "no-op"]
    happening: str | None
    why: str


class SitePlanBody(Body):
    commit: str | None
    moves: list[MoveBody]


_ACTIONS: dict[Happening, Literal["add", "update", "remove", "wait"]] = {
    Happening.SCHEDULED: "add",
    Happening.RETRIED_INSTALL: "add",
    Happening.SUPERSEDED_INSTALL: "add",
    Happening.UNWANTED: "remove",
    Happening.REMOVED: "remove",
    Happening.UNPLACEABLE: "wait",
    Happening.GAVE_UP: "wait",
}


def plan_router(conductor: Conductor) -> APIRouter:
    router = APIRouter(tags=["plan"])

    @router.get("/api/v1/plan", summary="What differs from what is wanted, and what would be done about it")
    async def show_plan(caller: Annotated[Caller, Depends(allowed("plan.read"))]) -> SitePlanBody:
        memory = conductor.memory
        moves = [
            MoveBody(
                deployment_id=move.deployment_id,
                name=memory.files[move.deployment_id].name if move.deployment_id in memory.files else "",
                node_id=move.node_id,
                action=_ACTIONS.get(move.happening, "update"),
                happening=move.happening.value,
                why=move.why,
            )
            for move in conductor.planned()
        ]
        moving = {(move.deployment_id, move.node_id) for move in moves}
        still = [
            MoveBody(
                deployment_id=deployment_id,
                name=memory.files[deployment_id].name if deployment_id in memory.files else "",
                node_id=node_id,
                action="no-op",
                happening=None,
                why=f"{instance.state}: {instance.step}",
            )
            for (deployment_id, node_id), instance in sorted(memory.instances.items())
            if (deployment_id, node_id) not in moving
        ]
        return SitePlanBody(commit=memory.applied, moves=moves + still)

    return router
