"""Finds what a node that lost its folder has left on the engine, and removes what its site calls orphaned.

Labels name the owner of a container, and the journal what this node has. The rest may belong to another node on the
same engine, which only the site can know: nothing is removed without its decision, and nothing that was not found
here.
"""

import anyio

from homeport.core.model.order import DEPLOYMENT, WorkKey
from homeport.errors import HomeportError
from homeport.log import get_log
from homeport.node.journal.journal import Journal
from homeport.node.link.news import Outlet
from homeport.node.orders.executor import Executor
from homeport.ports import FoundWorkloads, Notice, Orphans, Owned, Runtime, SharedEngine
from homeport.vocabulary import NodeId, NoticeCode

log = get_log("homeport.node")

REMOVE_SECONDS_MAX = 300.0


class OrphanWatch:
    def __init__(
        self, *, node_id: NodeId, runtime: Runtime, journal: Journal, executor: Executor, outlet: Outlet
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._journal = journal
        self._executor = executor
        self._outlet = outlet
        self._orphans = anyio.Event()
        self._reported: tuple[Owned, ...] = ()
        """What the site has called orphaned, and was not removed yet."""
        self._kept: frozenset[Owned] = frozenset()

    def take(self, orphans: Orphans) -> None:
        """The site's answer. Acted on in the next round."""
        self._reported = orphans.items
        self._orphans.set()

    async def wait(self, seconds: float) -> None:
        """Until the next round is due, or the site has answered."""
        with anyio.move_on_after(seconds):
            await self._orphans.wait()
        self._orphans = anyio.Event()

    async def look(self) -> None:
        """One round: removes what the site has called orphaned, then asks about what is there now."""
        if not isinstance(self._runtime, SharedEngine):
            return
        unknown = [item for item in await self._runtime.owned() if self._is_unknown(item)]
        reported, self._reported = self._reported, ()
        removed = [item for item in unknown if item in reported and await self._remove(self._runtime, item)]
        if removed:
            names = ", ".join(sorted({f"{item.component} of {item.deployment_id}" for item in removed})[:5])
            owners = ", ".join(sorted({item.node_id for item in removed})[:3])
            message = f"removed {len(removed)} orphaned components of node {owners}: {names}"
            self._outlet.notice(Notice(NoticeCode.ORPHANS_REMOVED, message))
        left = tuple(item for item in unknown if item not in removed)
        if left:
            self._outlet.found(FoundWorkloads(left))

    def _is_unknown(self, item: Owned) -> bool:
        if item.node_id != self._node_id:
            return True
        key = WorkKey(DEPLOYMENT, item.deployment_id)
        return key not in self._journal.entries and not self._executor.is_busy(key)

    async def _remove(self, engine: SharedEngine, item: Owned) -> bool:
        fields = {"owner": item.node_id, "deployment": item.deployment_id, "component": item.component}
        if not self._is_unknown(item):
            return False  # An order for it has arrived since.
        try:
            with anyio.fail_after(REMOVE_SECONDS_MAX):
                await engine.remove_owned(item)
        except (HomeportError, TimeoutError) as error:
            log.warning("orphan could not be removed", reason=str(error), **fields)
            return False
        log.info("orphan removed", **fields)
        return True
