"""The models capability of a site: the replicas of its nodes, and which of them are loaded."""

from typing import Final

from homeport.capability.site import SiteCapability, SitePart
from homeport.fleet.site.platform import SitePlatform
from homeport.models.demand import DEMAND
from homeport.models.site.replicas import TOPIC, SiteReplicas
from homeport.models.site.scaling import SiteScaling


def _part(site: SitePlatform) -> SitePart:
    scaling = SiteScaling(site)
    site.inference.models = scaling
    replicas = SiteReplicas(site, scaling.settle)
    site.inference.has_heard_of = lambda _: replicas.is_complete()
    return SitePart(
        on_replicas=replicas.announce,
        asked={DEMAND: scaling.take_demand, TOPIC: replicas.asked},
        loops=(replicas.run, scaling.run),
    )


SITE_MODELS: Final = SiteCapability("models", _part)
