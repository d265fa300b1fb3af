"""Sites by their names, and what is wanted there: read in pieces that a database takes, never the whole fleet."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from homeport.core.model.event import Deployment, Site
from homeport.ports import SITES, WHOLE, DeploymentFilter, SeenReader, SiteFilter
from homeport.vocabulary import SiteName

NAMED_MAX: Final = 1_000
"""So many sites are named in one query."""


async def sites_by_name(reader: SeenReader, names: Collection[SiteName]) -> dict[SiteName, Site]:
    """Those of `names` that exist."""
    found: dict[SiteName, Site] = {}
    for some in _pieces(names):
        page = await reader.page(SITES, SiteFilter().within(some), WHOLE)
        found |= {site.name: site for site in page.items}
    return found


async def wanted_by_site(reader: SeenReader, names: Collection[SiteName]) -> dict[SiteName, list[Deployment]]:
    wanted: dict[SiteName, list[Deployment]] = {}
    for some in _pieces(names):
        for row in await reader.deployments(DeploymentFilter().within(some)):
            if row.wanted:
                wanted.setdefault(row.site, []).append(row)
    return wanted


def _pieces(names: Collection[SiteName]) -> Iterator[Sequence[SiteName]]:
    ordered = sorted(set(names))
    for start in range(0, len(ordered), NAMED_MAX):
        yield ordered[start : start + NAMED_MAX]
