"""The capabilities of a site, one line each. Deployments are built in."""

from typing import Final

from homeport.capability.site import SiteCapability
from homeport.content.cache.capability import SITE_CONTENT
from homeport.inference.capability import SITE_INFERENCE
from homeport.jobs.site.capability import JOBS
from homeport.logs.site.capability import LOGS
from homeport.models.site.capability import SITE_MODELS
from homeport.telemetry.site.capability import TELEMETRY_AT_SITE
from homeport.tunnel.site.capability import TUNNEL

CAPABILITIES: Final[tuple[SiteCapability, ...]] = (
    JOBS,
    SITE_CONTENT,
    SITE_INFERENCE,
    TUNNEL,
    SITE_MODELS,
    TELEMETRY_AT_SITE,
    LOGS,
)
