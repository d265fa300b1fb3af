"""The store as seen by callers who are limited to some sites: everything at other sites is hidden.

Filtering here, under every query, leaves no route that could forget it. Each query defines how it is scoped; one
without a definition is not part of `SeenReader`, and a route that uses it does not type-check.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from homeport.core.access.roles import may_see
from homeport.core.jobs.job import Job
from homeport.core.model.access import SecretRecord
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold, Pin, Revision
from homeport.core.model.event import Deployment, Event, HistoryEntry, HistoryLine, Site, Subject
from homeport.core.model.instance import Instance
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.model import Definition, ItemKey, ItemResult, Run
from homeport.ports import (
    DEPLOYMENTS,
    HOLDS,
    NODES,
    SECRETS,
    SITES,
    WHOLE,
    Counts,
    Cut,
    DeploymentFilter,
    HoldFilter,
    Item,
    Listing,
    NodeFilter,
    Page,
    Reader,
    SecretFilter,
    Seen,
    SeenReader,
    SiteFilter,
    Store,
)
from homeport.vocabulary import (
    DeploymentId,
    Digest,
    EventKind,
    NodeId,
    RolloutId,
    RolloutState,
    SiteName,
    SubjectKind,
)

SHOWN_VALUES: Final = frozenset({"indexed_commit", "applied_commit"})
"""Of the role's own values: the indexed commit may be seen by every caller."""


class ReadOnly(Protocol):
    """The read-only half of a store."""

    def read(self) -> AbstractAsyncContextManager[SeenReader]: ...
    async def wait_for_event(self, after: int) -> int: ...


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
    async def read(self) -> AsyncIterator[SeenReader]:
        async with self._store.read() as reader:
            yield ScopedReader(reader, self._caller)

    async def wait_for_event(self, after: int) -> int:
        return await self._store.wait_for_event(after)


class ScopedReader:
    """Rows with a site are filtered by it, rows of a deployment by that deployment's site."""

    def __init__(self, reader: Reader, caller: Caller) -> None:
        self._reader = reader
        self._caller = caller

    async def page(self, listing: Listing[Item, Seen], where: Seen, cut: Cut) -> Page[Item]:
        return await self._reader.page(listing, where.within(self._caller.sites), cut)

    async def counts(self, listing: Listing[Any, Seen], where: Seen, by: Sequence[str] = ()) -> Counts:
        return await self._reader.counts(listing, where.within(self._caller.sites), by)

    async def sites(self) -> Sequence[Site]:
        return (await self.page(SITES, SiteFilter(), WHOLE)).items

    async def site(self, name: SiteName) -> Site | None:
        return await self._reader.site(name) if may_see(self._caller, name) else None

    async def nodes(self, site: SiteName | None = None) -> Sequence[Node]:
        return (await self.page(NODES, NodeFilter(site=site), WHOLE)).items

    async def nodes_called(self, node_id: NodeId) -> Sequence[Node]:
        return self._kept(await self._reader.nodes_called(node_id))

    async def holds(self, site: SiteName | None = None) -> Sequence[Hold]:
        return (await self.page(HOLDS, HoldFilter(site=site), WHOLE)).items

    async def secrets(self, site: SiteName | None = None) -> Sequence[SecretRecord]:
        return (await self.page(SECRETS, SecretFilter(site=site), WHOLE)).items

    async def pins(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Pin]:
        found = await self._reader.pins(deployment_ids)
        seen = await self._seen({pin.deployment_id for pin in found})
        return [pin for pin in found if pin.deployment_id in seen]

    async def margo_device_counts(self) -> Mapping[SiteName, int]:
        found = await self._reader.margo_device_counts()
        return {site: count for site, count in found.items() if may_see(self._caller, site)}

    async def deployments(self, where: DeploymentFilter) -> Sequence[Deployment]:
        return (await self.page(DEPLOYMENTS, where, WHOLE)).items

    async def deployment(self, deployment_id: DeploymentId) -> Deployment | None:
        found = await self._reader.deployment(deployment_id)
        return found if found is not None and may_see(self._caller, found.site) else None

    async def deployments_by_ids(self, deployment_ids: Sequence[DeploymentId]) -> Sequence[Deployment]:
        return self._kept(await self._reader.deployments_by_ids(deployment_ids))

    async def deployments_by_prefix(self, prefix: str) -> Sequence[Deployment]:
        return self._kept(await self._reader.deployments_by_prefix(prefix))

    async def instances(self, deployment_ids: Sequence[DeploymentId] | None = None) -> Sequence[Instance]:
        found = await self._reader.instances(deployment_ids)
        seen = await self._seen({item.deployment_id for item in found})
        return [item for item in found if item.deployment_id in seen]

    async def revisions(self, deployment_id: DeploymentId) -> Sequence[Revision]:
        return await self._reader.revisions(deployment_id) if await self._seen([deployment_id]) else ()

    async def versions_kept(self, deployment_ids: Sequence[DeploymentId]) -> Mapping[Digest, str]:
        return await self._reader.versions_kept(sorted(await self._seen(deployment_ids)))

    async def rollouts(
        self, states: Collection[RolloutState] | None = None, *, name: str | None = None
    ) -> Sequence[RolloutRow]:
        """Unfiltered: the sites of a rollout follow from sites and deployments, so `view_rollouts` counts those that
        the caller may see, and a rollout without any is not shown."""
        return await self._reader.rollouts(states, name=name)

    async def rollout(self, rollout_id: RolloutId) -> RolloutRow | None:
        return await self._reader.rollout(rollout_id)

    async def jobs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Job]:
        return self._kept(await self._reader.jobs_called(prefix, limit=limit))

    async def job_file(self, job: Job, path: str) -> bytes | None:
        return await self._reader.job_file(job, path) if may_see(self._caller, job.site) else None

    async def pipeline_runs_called(self, prefix: str, *, limit: int = 10) -> Sequence[Run]:
        found = await self._reader.pipeline_runs_called(prefix, limit=limit)
        return [run for run in found if run.site in self._caller.sites]

    async def pipeline_results(self, run: Run) -> Mapping[ItemKey, ItemResult]:
        return await self._reader.pipeline_results(run) if run.site in self._caller.sites else {}

    async def pipeline(self, name: str) -> Definition | None:
        found = await self._reader.pipeline(name)
        return found if found is not None and found.site in self._caller.sites else None

    async def history(self, deployment_id: DeploymentId, *, newest: int | None = None) -> Sequence[HistoryEntry]:
        seen = await self._seen([deployment_id])
        return await self._reader.history(deployment_id, newest=newest) if seen else ()

    async def history_after(
        self, after: int, *, limit: int, deployment_id: DeploymentId | None = None
    ) -> Sequence[HistoryLine]:
        """Fills up to `limit`: a reader takes fewer rows for the end of the list."""
        kept: list[HistoryLine] = []
        while True:
            found = await self._reader.history_after(after, limit=limit, deployment_id=deployment_id)
            seen = await self._seen({line.entry.deployment_id for line in found})
            kept += [line for line in found if line.entry.deployment_id in seen]
            if len(found) < limit or len(kept) >= limit:
                return kept[:limit]
            after = found[-1].id

    async def events(
        self, *, after: int, limit: int, deployment_id: DeploymentId | None = None, subject: Subject | None = None
    ) -> Sequence[Event]:
        """Fills up to `limit`: a reader takes fewer rows for the end of the log."""
        kept: list[Event] = []
        while True:
            found = await self._reader.events(after=after, limit=limit, deployment_id=deployment_id, subject=subject)
            kept += [event for event in found if self._may_see(event)]
            if len(found) < limit or len(kept) >= limit:
                return kept[:limit]
            after = found[-1].id

    async def last_event_id(self) -> int:
        return await self._reader.last_event_id()

    async def value(self, key: str) -> str | None:
        return await self._reader.value(key) if key in SHOWN_VALUES else None

    async def _seen(self, deployment_ids: Collection[DeploymentId]) -> frozenset[DeploymentId]:
        """Those of them that the caller may see."""
        rows = await self._reader.deployments_by_ids(sorted(deployment_ids)) if deployment_ids else ()
        return frozenset(row.id for row in rows if may_see(self._caller, row.site))

    def _may_see(self, event: Event) -> bool:
        """An event of a rollout may name any site, and so may one of a pipeline that belongs to none."""
        if event.event.site is None and event.event.subject.kind == SubjectKind.PIPELINE:
            return False
        return may_see(self._caller, event.event.site) and event.event.kind is not EventKind.ROLLOUT_STATE

    def _kept(self, found: Iterable[Kept]) -> list[Kept]:
        return [item for item in found if may_see(self._caller, item.site)]
