"""The loops of a node.

| loop       | period                        | limit of a round                                      |
|------------|-------------------------------|-------------------------------------------------------|
| executor   | at each order                 | prepare, component and removal limits of the settings |
| connection | always; backoff when it broke | welcome and each message: `answer_seconds`            |
| engine     | `engine_seconds`              | `ENGINE_LIMIT_SECONDS`                                |
| keeping    | `observe_seconds`             | `KEEPING_LIMIT_SECONDS`                               |
| orphans    | `orphan_seconds`              | `ORPHANS_LIMIT_SECONDS`                               |
| health     | the interval of each check    | `node.watch.health.ASK_SECONDS_MAX`                   |
| identity   | half of a certificate's life  | each call: the limit of `adapters/link/enrolment_http` |
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from homeport.errors import TransientError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.engine import NodeEngine
from homeport.node.link.connection import SiteConnection
from homeport.node.orders.executor import Executor
from homeport.node.settings import NodeSettings
from homeport.node.watch.orphans import OrphanWatch
from homeport.node.watch.repair import RepairLoop

log = get_log("homeport.node")

ENGINE_LIMIT_SECONDS = 60.0
KEEPING_LIMIT_SECONDS = 120.0
ORPHANS_LIMIT_SECONDS = 600.0
KEEPING_SHARE = 20.0
"""The pause after a round is at least this many times as long as the round: with very many deployments, observing
them takes at most a twentieth of a core."""


@dataclass(frozen=True, slots=True)
class Loops:
    settings: NodeSettings
    engine: NodeEngine
    executor: Executor
    keeper: RepairLoop
    orphans: OrphanWatch
    connection: SiteConnection
    brought: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """The loops of capabilities."""

    async def start(self, tasks: TaskGroup) -> None:
        """Starts them all. The site is contacted after the first check of the engine, so that it learns at once what
        this node can run; an engine that does not respond delays that by no more than the check's limit."""
        await tasks.start(self.executor.run)
        await once("engine", partial(self.engine.check, _nothing), limit_seconds=ENGINE_LIMIT_SECONDS)
        await tasks.start(self.keeper.health.run)
        tasks.start_soon(self._keep)
        tasks.start_soon(self._watch_engine)
        tasks.start_soon(self._find_orphans)
        for run in self.brought:
            tasks.start_soon(run)
        tasks.start_soon(self.connection.run)

    async def _watch_engine(self) -> None:
        check = partial(self.engine.check, self.connection.renew)
        while True:
            await anyio.sleep(self.settings.engine_seconds)
            await once("engine", check, limit_seconds=ENGINE_LIMIT_SECONDS)

    async def _find_orphans(self) -> None:
        await self.engine.wait_open()
        while True:
            await once("orphans", self.orphans.look, limit_seconds=ORPHANS_LIMIT_SECONDS)
            await self.orphans.wait(self.settings.orphan_seconds)

    async def _keep(self) -> None:
        """Begins when the engine is open: before that, an interrupted order would only fail."""
        await self.engine.wait_open()
        self.executor.resume(self.keeper.revive)
        while True:
            started = anyio.current_time()
            await once("keeping", self.keeper.keep, limit_seconds=KEEPING_LIMIT_SECONDS)
            took = anyio.current_time() - started
            await anyio.sleep(max(self.settings.observe_seconds, took * KEEPING_SHARE))


async def once(name: str, work: Callable[[], Awaitable[None]], *, limit_seconds: float) -> None:
    """A transient failure costs one round; anything else ends the role, because a loop that died silently is worse
    than a process that its supervisor restarts."""
    try:
        with anyio.fail_after(limit_seconds):
            await work()
    except (TransientError, TimeoutError) as error:
        log.warning("loop iteration failed", loop=name, error=repr(error))


def _nothing() -> None:
    pass
