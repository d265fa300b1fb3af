"""`GET /api/v1/cache`: what the cache of this site takes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from homeport.content.bodies import CacheBody
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.serving.capability import Routes
from homeport.serving.routing import Router

ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/cache"): Action("cache.read", Level.VIEWER, Scope.SITE, Audit.NONE),
}

Ask = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


def site_usage_routes(usage: Ask) -> Routes:
    router = Router(tags=["cache"])

    @router.get("/api/v1/cache", summary="What the cache of this site takes")
    async def show_cache() -> CacheBody:
        return CacheBody(**await usage({}))

    return Routes(router, ACTIONS)
