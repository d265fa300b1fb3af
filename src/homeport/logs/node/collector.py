"""Follows what containers write, and puts it into the node's buffer.

A container is followed from its start on, and again after a restart of the node from where the buffer ends: the
place in its output is made durable together with the lines.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import anyio
from anyio.abc import TaskGroup

from homeport.core.logs.gaps import gap
from homeport.core.logs.line import LogLine, deployment_source
from homeport.core.logs.text import parse_line
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.logs.node.spool import LogSpool
from homeport.ports import Clock, Container, FollowsOutput, Observation, OutputLine, Runtime, Workload

log = get_log("homeport.logs")

AGAIN_SECONDS: Final = 1.0
"""Pause before a container that ended is asked again: the engine may have restarted it."""
FOLLOWED_MAX: Final = 2_000
STALE_SECONDS: Final = 3600.0
"""For how long the place in the output of a container that is gone is kept."""


@dataclass(slots=True)
class _Followed:
    scope: anyio.CancelScope
    seen_at: float


class LogCollector:
    def __init__(self, runtime: Runtime, spool: LogSpool, clock: Clock) -> None:
        self._runtime = runtime
        self._spool = spool
        self._clock = clock
        self._started: list[Workload] = []
        self._followed: dict[str, _Followed] = {}
        self._ended: dict[str, str] = {}
        """Containers whose output has ended, and which run of them."""
        self._wanted: list[tuple[Workload, Container, bool]] = []
        self._woken = anyio.Event()
        self._places: dict[str, str] = {}

    def started(self, workload: Workload) -> None:
        """A component was just started; its containers are looked up."""
        self._started.append(workload)
        self._woken.set()

    def observed(self, workload: Workload, seen: Observation) -> None:
        alike = Counter(container.service for container in seen.containers)
        for container in seen.containers:
            if container.id in self._followed:
                self._followed[container.id].seen_at = self._clock.monotonic()
            elif container.id and self._ended.get(container.id) != _run_of(container):
                self._wanted.append((workload, container, alike[container.service] > 1))
                self._woken.set()

    async def run(self) -> None:
        if not isinstance(self._runtime, FollowsOutput):
            return
        # Outputs of jobs have theirs under the name of their source.
        self._places = {key: place for key, place in self._spool.positions().items() if "/" not in key}
        async with anyio.create_task_group() as tasks:
            while True:
                await self._woken.wait()
                self._woken = anyio.Event()
                started, self._started = self._started, []
                for workload in started:
                    await self._look(workload)
                wanted, self._wanted = self._wanted, []
                for workload, container, several in wanted:
                    self._follow(tasks, self._runtime, workload, container, several)
                await self._let_go()

    async def _look(self, workload: Workload) -> None:
        try:
            seen = await self._runtime.observe(workload.deployment_id)
        except HomeportError as error:
            log.debug("container list failed", deployment=workload.deployment_id, error=str(error))
            return
        for each in seen:
            if each.component == workload.spec.name:
                self.observed(workload, each)

    def _follow(
        self, tasks: TaskGroup, runtime: FollowsOutput, workload: Workload, container: Container, several: bool
    ) -> None:
        if container.id in self._followed or len(self._followed) >= FOLLOWED_MAX:
            return
        followed = _Followed(anyio.CancelScope(), self._clock.monotonic())
        self._followed[container.id] = followed
        read = _Reading(runtime, workload, container, self._places.get(container.id, ""), several)
        tasks.start_soon(self._read, read, followed)

    async def _read(self, read: "_Reading", followed: _Followed) -> None:
        container = read.container
        try:
            with followed.scope:
                await read.all(self._spool, self._clock)
                self._ended[container.id] = _run_of(container)
        except HomeportError as error:
            log.info("output of a container not read", container=container.name, error=str(error))
            await anyio.sleep(AGAIN_SECONDS)
        except Exception:  # what one container prints must not end the node
            log.exception("output of a container not read", container=container.name)
            await anyio.sleep(AGAIN_SECONDS)
        finally:
            self._places[container.id] = read.resume
            del self._followed[container.id]

    async def _let_go(self) -> None:
        """Containers that were not seen for a while are gone."""
        limit = self._clock.monotonic() - STALE_SECONDS
        for followed in self._followed.values():
            if followed.seen_at < limit:
                followed.scope.cancel()
        if len(self._places) > FOLLOWED_MAX:
            gone = [each for each in self._places if each not in self._followed][: FOLLOWED_MAX // 2]
            for each in gone:
                self._places.pop(each), self._ended.pop(each, None)
            try:
                await self._spool.forget_positions(gone)
            except HomeportError as error:
                log.warning("log write failed", error=str(error))


@dataclass(slots=True)
class _Reading:
    runtime: FollowsOutput
    workload: Workload
    container: Container
    resume: str
    several: bool
    """Whether there are more containers of the same name: then lines say which one wrote them."""

    async def all(self, spool: LogSpool, clock: Clock) -> None:
        """Until the container has ended, and was not restarted by its engine."""
        is_any = True
        while is_any:
            is_any = await self._once(spool, clock.now)
            await anyio.sleep(AGAIN_SECONDS)

    async def _once(self, spool: LogSpool, now: Callable[[], datetime]) -> bool:
        """Reads until the output ends; whether there was any."""
        is_any = False
        async for outputs in self.runtime.follow(self.workload, self.container, self.resume):
            is_any = True
            await spool.room()
            lines = self._lines(outputs, now)
            self.resume = outputs[-1].resume
            spool.put(lines, {self.container.id: self.resume})
        return is_any

    def _lines(self, outputs: Sequence[OutputLine], now: Callable[[], datetime]) -> list[LogLine]:
        source = deployment_source(self.workload.deployment_id, self.workload.spec.name, self.container.service)
        secrets = tuple(self.workload.spec.secret_values.values())
        name = {"container": self.container.name} if self.several else {}
        errors = {**name, "stream": "stderr"}
        lines: list[LogLine] = []
        for output in outputs:
            at = output.at or now()
            if output.lost:
                lines.append(gap(source, at, 0, output.lost))
            if output.text is None:
                continue
            fields = errors if output.is_error else name
            line = parse_line(output.text, source=source, at=at, secrets=secrets, fields=fields, size=output.size)
            lines.append(line)
        return lines


def _run_of(container: Container) -> str:
    return f"{container.started_at}/{container.running}"
