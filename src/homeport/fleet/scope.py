"""The store as somebody sees it who is limited to some sites: what is elsewhere does not exist for them.

Filtering here, under every query, leaves no route that could forget it.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar, cast

from homeport.core.access.roles import may_see
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, Event, Site
from homeport.core.model.node import Node
from homeport.ports import DeploymentFilter, Reader, Store
from homeport.vocabulary import DeploymentId, EventKind, NodeId, SiteName


class ReadOnly(Protocol):
    """The half of a store that reading needs."""

    def read(self) -> AbstractAsyncContextManager[Reader]: ...
    async def wait_for_event(self, after: int) -> None: ...


def seen_by(caller: Caller, store: Store) -> ReadOnly:
    return _ScopedStore(store, caller) if caller.sites else store


class _Placed(Protocol):
    @property
    def site(self) -> SiteName: ...


Kept = TypeVar("Kept", bound=_Placed)


class _ScopedStore:
    def __init__(self, store: Store, caller: Caller) -> None:
        self._store = store
        self._caller = caller

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Reader]:
        async with self._store.read() as reader:
            yield cast(Reader, _ScopedReader(reader, self._caller))

    async def wait_for_event(self, after: int) -> None:
        await self._store.wait_for_event(after)


class _ScopedReader:
    """Filters what belongs to a site. All other queries are asked as they are: they name a deployment that was
    found here before, or belong to no site."""

    def __init__(self, reader: Reader, caller: Caller) -> None:
        self._reader = reader
        self._caller = caller

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    async def sites(self) -> Sequence[Site]:
        return [site for site in await self._reader.sites() if may_see(self._caller, site.name)]

    async def site(self, name: SiteName) -> Site | None:
        return await self._reader.site(name) if may_see(self._caller, name) else None

    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]:
        return self._kept(await self._reader.nodes(site))

    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        return self._kept(await self._reader.nodes_called(node_id))

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        return self._kept(await self._reader.holds(site))

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]:
        return self._kept(await self._reader.deployments(where))

    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None:
        found = await self._reader.deployment(deployment_id)
        return found if found is not None and may_see(self._caller, found.site) else None

    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
        return self._kept(await self._reader.deployments_by_ids(deployment_ids))

    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]:
        return self._kept(await self._reader.deployments_by_prefix(prefix))

    async def events(self, *, after: int, limit: int, deployment_id: DeploymentId | None = None) -> Sequence[Event]:
        """As many as there are up to `limit`: a reader takes fewer for the end of the log."""
        kept: list[Event] = []
        while True:
            found = await self._reader.events(after=after, limit=limit, deployment_id=deployment_id)
            kept += [event for event in found if self._may_see(event)]
            if len(found) < limit or len(kept) >= limit:
                return kept[:limit]
            after = found[-1].id

    def _may_see(self, event: Event) -> bool:
        """What is said of a rollout names sites, and not only theirs."""
        return may_see(self._caller, event.event.site) and event.event.kind is not EventKind.ROLLOUT_STATE

    def _kept(self, found: Iterable[Kept]) -> list[Kept]:
        return [item for item in found if may_see(self._caller, item.site)]
