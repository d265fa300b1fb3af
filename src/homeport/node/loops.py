"""What a node does all the time.

| loop       | period                        | limit of a round                                      |
|------------|-------------------------------|-------------------------------------------------------|
| executor   | at each order                 | prepare, component and removal limits of the settings |
| connection | always; backoff when it broke | welcome and each message: `answer_seconds`            |
| engine     | `engine_seconds`              | `ENGINE_LIMIT_SECONDS`                                |
| keeping    | `observe_seconds`             | `KEEPING_LIMIT_SECONDS`                               |
| identity   | half of a certificate's life  | each call: the limit of `adapters/link/enrolment_http` |
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from homeport.errors import TransientError
from homeport.node.connection import Connection
from homeport.node.engine import Engine
from homeport.node.executor import Executor
from homeport.node.keeping import Keeper
from homeport.node.settings import NodeSettings

log = logging.getLogger("homeport.node")

ENGINE_LIMIT_SECONDS = 60.0
KEEPING_LIMIT_SECONDS = 120.0
KEEPING_SHARE = 20.0
"""The pause after a round is at least so many times as long as the round: with very many deployments, looking at
them all takes a twentieth of a core and not more."""


@dataclass(frozen=True, slots=True)
class Loops:
    settings: NodeSettings
    engine: Engine
    executor: Executor
    keeper: Keeper
    connection: Connection

    async def start(self, tasks: TaskGroup) -> None:
        """Starts them all. The site is called after the first look at the engine, so that it hears at once what
        this node can run; but an engine that does not answer keeps nobody waiting for longer than that look."""
        await tasks.start(self.executor.run)
        await once("engine", partial(self.engine.check, _nothing), limit_seconds=ENGINE_LIMIT_SECONDS)
        tasks.start_soon(self._keep)
        tasks.start_soon(self._watch_engine)
        tasks.start_soon(self.connection.run)

    async def _watch_engine(self) -> None:
        check = partial(self.engine.check, self.connection.renew)
        while True:
            await anyio.sleep(self.settings.engine_seconds)
            await once("engine", check, limit_seconds=ENGINE_LIMIT_SECONDS)

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
    """A transient failure costs one round; anything else ends the role, for a loop that died in silence is worse
    than a process that its supervisor restarts."""
    try:
        with anyio.fail_after(limit_seconds):
            await work()
    except (TransientError, TimeoutError) as error:
        log.warning("round lost", extra={"loop": name, "error": repr(error)})


def _nothing() -> None:
    pass
