"""Sends a site a request that only it can carry out, and waits for the report that confirms it.

Central does not store the request: one that the site does not receive is not carried out, and the caller gets an
error.
"""

from collections.abc import Awaitable, Callable

from homeport.core.model.deployment import Hold
from homeport.core.model.node import Node, Tunable
from homeport.fleet.central.sites.queries import SiteQueries
from homeport.fleet.shared.maintenance import check_drainable, check_drained, check_hold, find_hold
from homeport.ports import Clock, DrainNode, LiftHold, Reader, Request, SetHold, Store, TuneNode
from homeport.vocabulary import DeploymentId, SiteName

IsDone = Callable[[Reader], Awaitable[bool]]
"""Whether the site's reports show that the request was carried out."""


async def ask(
    site: SiteName, request: Request, is_done: IsDone, store: Store, queries: SiteQueries, *, what: str
) -> None:
    """Returns when the site has reported it. Raises the site's refusal, and PeerUnavailable for a site that is not
    connected, or has not confirmed in time."""

    async def done() -> None:
        while True:
            async with store.read() as reader:
                if await is_done(reader):
                    return
                after = await reader.last_event_id()
            await store.wait_for_event(after)

    await queries.confirm(site, request, done, what)


class SiteKeeper:
    """Central's operator commands: they are forwarded to the site."""

    def __init__(self, store: Store, queries: SiteQueries, clock: Clock) -> None:
        self._store = store
        self._queries = queries
        self._clock = clock

    async def drain(self, node: Node, reason: str) -> None:
        check_drainable(node)
        await self._set_drain(node, reason, what=f"drain its node {node.id}")

    async def undrain(self, node: Node) -> None:
        check_drained(node)
        await self._set_drain(node, None, what=f"give work to its node {node.id} again")

    async def tune(self, node: Node, tunable: Tunable) -> None:
        async def is_so(reader: Reader) -> bool:
            return any(known.id == node.id and known.tunable == tunable for known in await reader.nodes(node.site))

        what = f"change the settings of its node {node.id}"
        await ask(node.site, TuneNode(node.id, tunable), is_so, self._store, self._queries, what=what)

    async def hold(self, hold: Hold) -> None:
        check_hold(hold, self._clock.now())

        async def is_held(reader: Reader) -> bool:
            return hold in await reader.holds(hold.site)

        await ask(hold.site, SetHold(hold), is_held, self._store, self._queries, what="hold its updates")

    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None:
        async with self._store.read() as reader:
            found = find_hold(await reader.holds(site), site, deployment_id, self._clock.now())

        async def is_free(reader: Reader) -> bool:
            return found not in await reader.holds(site)

        await ask(site, LiftHold(deployment_id, by), is_free, self._store, self._queries, what="release its updates")

    async def _set_drain(self, node: Node, reason: str | None, *, what: str) -> None:
        async def is_so(reader: Reader) -> bool:
            return any(known.id == node.id and known.drain == reason for known in await reader.nodes(node.site))

        await ask(node.site, DrainNode(node.id, reason), is_so, self._store, self._queries, what=what)
