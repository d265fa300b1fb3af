"""Asks a site for something that only it can do, and waits for the report that confirms it.

Central keeps nothing of the wish: what the site does not hear is not done, and whoever asked is told so.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from homeport.core.model.deployment import Hold
from homeport.core.model.node import Node
from homeport.errors import PeerUnavailable
from homeport.fleet.calls import Calls
from homeport.fleet.maintenance import check_drainable, check_drained, check_hold, find_hold
from homeport.ports import Clock, DrainNode, LiftHold, Reader, Request, SetHold, Store
from homeport.vocabulary import DeploymentId, SiteName

CONFIRM_SECONDS_MAX: Final = 10.0

IsDone = Callable[[Reader], Awaitable[bool]]
"""Whether what was asked for shows in what the site has reported."""


async def ask(site: SiteName, request: Request, is_done: IsDone, store: Store, calls: Calls, *, what: str) -> None:
    """Raises PeerUnavailable for a site that does not listen, or has not confirmed in time."""
    if not calls.ask(site, request):
        raise PeerUnavailable(
            f"Site {site} is not connected, and only it can {what}.",
            hint="Try again when the site is back, or ask the site itself with --url.",
        )
    with anyio.move_on_after(CONFIRM_SECONDS_MAX):
        while True:
            async with store.read() as reader:
                if await is_done(reader):
                    return
                after = await reader.last_event_id()
            await store.wait_for_event(after)
    raise PeerUnavailable(
        f"Site {site} was asked to {what} and has not confirmed it yet.",
        hint=f"See  homeport nodes list --site {site}  and  homeport sites show {site}",
    )


class SiteKeeper:
    """What central does for an operator: it passes the word on."""

    def __init__(self, store: Store, calls: Calls, clock: Clock) -> None:
        self._store = store
        self._calls = calls
        self._clock = clock

    async def drain(self, node: Node, reason: str) -> None:
        check_drainable(node)
        await self._set_drain(node, reason, what=f"drain its node {node.id}")

    async def undrain(self, node: Node) -> None:
        check_drained(node)
        await self._set_drain(node, None, what=f"give work to its node {node.id} again")

    async def hold(self, hold: Hold) -> None:
        check_hold(hold, self._clock.now())

        async def is_held(reader: Reader) -> bool:
            return hold in await reader.holds(hold.site)

        await ask(hold.site, SetHold(hold), is_held, self._store, self._calls, what="hold its updates")

    async def release(self, site: SiteName, deployment_id: DeploymentId | None, *, by: str) -> None:
        async with self._store.read() as reader:
            found = find_hold(await reader.holds(site), site, deployment_id, self._clock.now())

        async def is_free(reader: Reader) -> bool:
            return found not in await reader.holds(site)

        await ask(site, LiftHold(deployment_id, by), is_free, self._store, self._calls, what="release its updates")

    async def _set_drain(self, node: Node, reason: str | None, *, what: str) -> None:
        async def is_so(reader: Reader) -> bool:
            return any(known.id == node.id and known.drain == reason for known in await reader.nodes(node.site))

        await ask(node.site, DrainNode(node.id, reason), is_so, self._store, self._calls, what=what)
