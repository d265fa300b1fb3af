"""A site's half of the content capability: it serves its nodes, and reports what it has."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from homeport.capability.site import SiteCapability, SitePart
from homeport.content.cache.deployed import DeployedComponents
from homeport.content.cache.metrics import CacheMetrics
from homeport.content.cache.routes import pull_routes
from homeport.content.cache.usage_routes import site_usage_routes
from homeport.fleet.site.platform import SitePlatform
from homeport.wire.content import USAGE_TOPIC


def _part(site: SitePlatform) -> SitePart:
    cache = site.content

    async def usage(_: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"enabled": False} if cache is None else {"enabled": True, **asdict(await cache.usage())}

    if cache is None:
        return SitePart(routes=(site_usage_routes(usage),), asked={USAGE_TOPIC: usage})
    cache.protect(DeployedComponents(site))
    return SitePart(
        routes=(pull_routes(cache), site_usage_routes(usage)),
        asked={USAGE_TOPIC: usage},
        loops=(cache.run,),
        metrics=(CacheMetrics(cache),),
    )


SITE_CONTENT: Final = SiteCapability("content", _part)
