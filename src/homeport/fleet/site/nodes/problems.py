"""What is wrong with the nodes of a site: notices, which are events here and at central, and the problem that is
shown on a node until it is gone. Called in the conductor's turn.
"""

from typing import Final

from homeport.core.model.report import NodeNoticed
from homeport.fleet.shared.progress import notice_event
from homeport.fleet.site.nodes.roster import NodeRoster
from homeport.fleet.site.reports.queue import ReportQueue
from homeport.fleet.site.state import SiteState
from homeport.log import get_log
from homeport.ports import Clock, Transaction
from homeport.vocabulary import NodeId, NoticeCode

log = get_log(__name__)

NOTICE_SECONDS: Final = 60.0
"""Repeated notices of a node are recorded once in this time."""
PROBLEM_SECONDS: Final = 600.0
"""A second machine retries every few seconds; after this long without an attempt it is gone."""


class NodeProblems:
    def __init__(self, memory: SiteState, clock: Clock, queue: ReportQueue, roster: NodeRoster) -> None:
        self._memory = memory
        self._clock = clock
        self._queue = queue
        self._roster = roster
        self._noticed: dict[tuple[NodeId, NoticeCode], float] = {}
        self._detected: dict[NodeId, float] = {}
        """When the problem shown on each node was last detected."""
        self._skewed: dict[NodeId, str] = {}
        """Nodes that were refused because of their version, and the message."""

    async def notice(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        """Something that a node did or refused, or that was detected about it."""
        moment = self._clock.monotonic()
        log.warning("node notice", node=node_id, code=code.value, message=message)
        if moment - self._noticed.get((node_id, code), -NOTICE_SECONDS) < NOTICE_SECONDS:
            return
        self._noticed[node_id, code] = moment
        noticed = NodeNoticed(node_id, code, message, self._clock.now())

        async def work(tx: Transaction) -> None:
            await tx.append_events([notice_event(noticed, self._memory.site)])
            await self._queue.put(tx, [noticed])

        await self._queue.commit(work)

    async def report(self, node_id: NodeId, code: NoticeCode, message: str) -> None:
        """Why a node was not admitted. A version skew, which lasts until an upgrade, is an event only once."""
        self._detected[node_id] = self._clock.monotonic()
        await self._roster.set_problem(node_id, message)
        if code is not NoticeCode.VERSION_SKEW or self._skewed.get(node_id) != message:
            await self.notice(node_id, code, message)
        if code is NoticeCode.VERSION_SKEW:
            self._skewed[node_id] = message

    async def forget_old(self, moment: float) -> None:
        """Clears problems that were not detected for a while."""
        for node_id in [key for key, node in self._memory.nodes.items() if node.problem is not None]:
            if moment - self._detected.setdefault(node_id, moment) >= PROBLEM_SECONDS:
                del self._detected[node_id]
                await self._roster.set_problem(node_id, None)

    async def admitted(self, node_id: NodeId) -> None:
        """Clears the problem of a node that was too many releases apart."""
        if self._skewed.pop(node_id, None) is not None:
            await self._roster.set_problem(node_id, None)
