"""The webhook for Git servers: the repository was pushed to."""

from typing import Final

from fastapi import Response

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.ports import GitSource
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routing import Router

# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/webhooks/git"): Action("git.nudge", Level.OPERATOR, Scope.FLEET, Audit.NONE),
}
# fmt: on


def webhooks_routes(git: GitSource) -> Routes:
    router = Router(tags=["webhooks"])

    @router.post(
        "/api/v1/webhooks/git",
        summary="The repository has changed: fetch it now",
        status_code=202,
        response_class=Response,
    )
    async def git_moved(caller: CallerOf) -> Response:
        """The body is not trusted or read; it only triggers a fetch."""
        git.nudge()
        return Response(status_code=202)

    return Routes(router, ACTIONS)
