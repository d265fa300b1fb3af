"""What the site would do next, and everything it would leave unchanged."""

from typing import Final, Literal

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.reconcile.outlook import Expected
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.state import SiteState
from homeport.serving.bodies.body import Body
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router


class MoveBody(Body):
    deployment_id: str
    name: str
    node_id: str
    action: Literal["add", "update", "remove", "wait", "no-op"]
    status: Literal["planned", "held", "under way", "waits", "stays"]
    """`held`: delayed by a hold; `under way`: a node works on it."""
    trigger: str | None
    why: str


class SitePlanBody(Body):
    commit: str | None
    moves: list[MoveBody]


# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/plan"): Action("plan.read", Level.VIEWER, Scope.SITE, Audit.NONE),
}
# fmt: on


def plan_routes(conductor: Conductor) -> Routes:
    router = Router(tags=["plan"])

    @router.get("/api/v1/plan", summary="The differences from the desired state, and the planned actions")
    async def show_plan(caller: CallerOf) -> SitePlanBody:
        memory = conductor.memory
        return SitePlanBody(
            commit=memory.applied, moves=[_move_body(each, memory) for each in await conductor.outlook()]
        )

    return Routes(router, ACTIONS)


def _move_body(expected: Expected, memory: SiteState) -> MoveBody:
    file = memory.files.get(expected.deployment_id)
    return MoveBody(
        deployment_id=expected.deployment_id,
        name="" if file is None else file.name,
        node_id=expected.node_id,
        action=expected.action,
        status=expected.status,
        trigger=None if expected.trigger is None else expected.trigger.value,
        why=expected.why,
    )
