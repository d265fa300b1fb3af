"""Which components are alive at a site: those of every release that is deployed here or can be rolled back to.

A component's user is named after its content without secrets, which a node and the deployment file both know.
"""

from collections.abc import Collection
from dataclasses import field
from typing import Final

from anyio.to_thread import run_sync

from homeport.catalog.deployment import deployment_path, parse_deployment
from homeport.errors import HomeportError
from homeport.fleet.site.platform import SitePlatform
from homeport.lazy_dataclass import dataclass
from homeport.ports import DeploymentFilter
from homeport.vocabulary import DeploymentId, Digest, SiteName

PARSED_MAX: Final = 20_000
DEPLOYMENTS_READ: Final = 500
"""How many are read at a time: their contents are not kept."""
Contents = dict[Digest, tuple[DeploymentId, bytes]]


@dataclass(slots=True)
class DeployedComponents:
    """A `ports.LiveUsers`. Remembers what it parsed: a revision never changes."""

    site: SitePlatform
    _parsed: dict[Digest, frozenset[str]] = field(default_factory=dict)

    async def __call__(self) -> Collection[str]:
        async with self.site.store.read() as reader:
            pins = await reader.pins()
            ids = [deployment.id for deployment in await reader.deployments(DeploymentFilter())]
        present = await self._read({pin.revision: (pin.deployment_id, pin.content) for pin in pins})
        for start in range(0, len(ids), DEPLOYMENTS_READ):
            async with self.site.store.read() as reader:
                kept = await reader.revisions_of(ids[start : start + DEPLOYMENTS_READ])
            present |= await self._read({each.revision: (each.deployment_id, each.content) for each in kept})
        if len(self._parsed) > PARSED_MAX:
            self._parsed = {key: self._parsed[key] for key in present}
        return {user for revision in present for user in self._parsed[revision]}

    async def _read(self, contents: Contents) -> set[Digest]:
        fresh = {revision: content for revision, content in contents.items() if revision not in self._parsed}
        if fresh:
            self._parsed |= await run_sync(_users_of, fresh, self.site.site)
        return set(contents)


def _users_of(contents: Contents, site: SiteName) -> dict[Digest, frozenset[str]]:
    return {revision: _users_in(*content, site) for revision, content in contents.items()}


def _users_in(deployment_id: DeploymentId, content: bytes, site: SiteName) -> frozenset[str]:
    """None of a file that is not valid: it was never carried out."""
    try:
        desired = parse_deployment(content, deployment_path(site, deployment_id), site)
    except HomeportError:
        return frozenset()
    return frozenset(spec.content_user for spec in desired.release.components)
