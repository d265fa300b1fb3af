"""`GET /api/v1/sites/{site}/cache`: what the cache of a site takes, as the site says."""

from typing import Final

from pydantic import ValidationError

from homeport.content.bodies import CacheBody
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.errors import BadAnswer
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.shared.overview import find_site
from homeport.ports import Store
from homeport.serving.capability import Routes
from homeport.serving.routing import Router
from homeport.vocabulary import SiteName
from homeport.wire.content import USAGE_TOPIC

ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/sites/{site}/cache"): Action("cache.read", Level.VIEWER, Scope.SITE, Audit.NONE),
}


def central_usage_routes(questions: SiteQueries, store: Store) -> Routes:
    router = Router(tags=["cache"])

    @router.get("/api/v1/sites/{site}/cache", summary="What the cache of a site takes", responses={404: {}})
    async def show_cache(site: str) -> CacheBody:
        async with store.read() as reader:
            await find_site(reader, site)
        answer = await questions.ask(SiteName(site), USAGE_TOPIC, {})
        try:
            known = {name: value for name, value in answer.items() if name in CacheBody.model_fields}
            return CacheBody(**known)
        except ValidationError as error:
            raise BadAnswer(f"Site {site} answered what cannot be read.") from error

    return Routes(router, ACTIONS)
