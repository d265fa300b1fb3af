"""Where a Git server says that it was pushed to."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from homeport.core.model.caller import Caller
from homeport.ports import GitSource
from homeport.serving.callers import allowed


def webhooks_router(git: GitSource) -> APIRouter:
    router = APIRouter(tags=["webhooks"])

    @router.post(
        "/api/v1/webhooks/git",
        summary="The repository has moved: look at once",
        status_code=202,
        response_class=Response,
    )
    async def git_moved(caller: Annotated[Caller, Depends(allowed("git.nudge"))]) -> Response:
        """Whatever the body says is not believed; it only makes central look."""
        git.nudge()
        return Response(status_code=202)

    return router
