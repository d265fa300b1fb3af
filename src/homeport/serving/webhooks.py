"""Where a Git server says that it was pushed to."""

from fastapi import APIRouter, Response

from homeport.ports import GitSource
from homeport.serving.callers import CallerOf


def webhooks_router(git: GitSource) -> APIRouter:
    router = APIRouter(tags=["webhooks"])

    @router.post(
        "/api/v1/webhooks/git",
        summary="The repository has moved: look at once",
        status_code=202,
        response_class=Response,
    )
    async def git_moved(caller: CallerOf) -> Response:
        """Whatever the body says is not believed; it only makes central look."""
        git.nudge()
        return Response(status_code=202)

    return router
