"""Carries out one order on this machine. Everything is fetched before anything that runs is touched; components
start in the order of the release, each healthy before the next; what the release no longer has goes last.

Every call to the runtime is idempotent, so work that was cancelled or killed is simply done again from its start.
"""

import logging
import math
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.order import Order, Progress
from homeport.core.secrets import lacking, masked
from homeport.errors import WorkFailed
from homeport.failpoints import Point, passing
from homeport.node import checking
from homeport.node.news import Outlet
from homeport.node.settings import NodeSettings
from homeport.node.tracing import OrderSpans, Told
from homeport.ports import Clock, InThread, OnProgress, Runtime, Workload
from homeport.vocabulary import Code, DeploymentId, Generation, Step

log = logging.getLogger("homeport.node")

Note = Callable[[Progress], Awaitable[None]]
"""Keeps news until the site has them, across restarts."""
SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


@dataclass(slots=True)
class Trail:
    """How far the work on an order came."""

    spans: OrderSpans
    has_changed: bool = False
    """Whether anything that may have been running was touched."""


class Work:
    def __init__(
        self,
        settings: NodeSettings,
        runtime: Runtime,
        outlet: Outlet,
        clock: Clock,
        *,
        in_thread: InThread = run_sync,
        note: Note | None = None,
    ) -> None:
        """Without `note`, what happened without an order is told like all progress, and forgotten at a restart."""
        self._settings = settings
        self._runtime = runtime
        self._outlet = outlet
        self._clock = clock
        self._in_thread = in_thread
        self._note = note
        self._slots = anyio.Semaphore(settings.parallel)

    async def apply(self, order: Order, release: Release, leftovers: Iterable[str], trail: Trail) -> None:
        """Makes the release run, or raises WorkFailed. `leftovers` names components of earlier releases."""
        with _limit(order.limit_seconds or math.inf, f"{release.name} was not installed", ""):
            await self._apply_all(order, release, leftovers, trail)

    async def _apply_all(self, order: Order, release: Release, leftovers: Iterable[str], trail: Trail) -> None:
        self._refuse_foreign(release)
        for spec in release.components:
            _refuse_lacking(spec)
        for spec in release.components:
            await self._prepare(order.generation, self.workload(release.deployment_id, spec), trail.spans)
        passing(Point.RUNTIME_AFTER_PULL)
        trail.has_changed = True
        for spec in release.components:
            await self._start(order.generation, self.workload(release.deployment_id, spec), trail.spans)
        wanted = {spec.name for spec in release.components}
        present = {seen.component for seen in await self._runtime.observe(release.deployment_id)}
        for name in sorted((present | set(leftovers)) - wanted):
            await self._remove(order, name, trail.spans)

    async def remove(self, order: Order, components: Iterable[str], trail: Trail) -> None:
        """Removes every component, those known and those found, or raises WorkFailed with REMOVE_FAILED."""
        present = {seen.component for seen in await self._runtime.observe(order.deployment_id)}
        for name in sorted(present | set(components)):
            await self._remove(order, name, trail.spans)
        await self._discard(self._folder(order.deployment_id))

    async def restore(
        self, generation: Generation, deployment_id: DeploymentId, spec: ComponentSpec, why: str
    ) -> None:
        """Starts a component again. What was fetched before is tried first, for there may be no uplink."""
        _refuse_lacking(spec)
        workload = self.workload(deployment_id, spec)
        await self._found(generation, deployment_id, Step.DRIFTED, spec.name, why)
        try:
            await self._apply(workload, _ignore)
        except WorkFailed:
            with _limit(self._settings.prepare_seconds, f"{spec.name} could not be fetched", spec.name):
                async with self._slots:
                    await self._runtime.prepare(workload, _ignore)
            await self._apply(workload, _ignore)
        await self._found(generation, deployment_id, Step.RESTORED, spec.name, f"{why}; started again")

    async def _found(
        self, generation: Generation, deployment_id: DeploymentId, step: Step, component: str, message: str
    ) -> None:
        """Nobody asked for it, so nobody would miss it: it is written down first, where that is possible."""
        progress = Progress(deployment_id, generation, step, component, message, self._clock.now())
        try:
            if self._note is None:
                self._outlet.progress(progress)
            else:
                await self._note(progress)
                self._outlet.wake()
        except WorkFailed as error:
            log.warning("drift is told and not written down", extra={"error": str(error)})
            self._outlet.progress(progress)

    def workload(self, deployment_id: DeploymentId, spec: ComponentSpec) -> Workload:
        return Workload(deployment_id, spec, self._folder(deployment_id, spec.name))

    def tell(
        self,
        generation: Generation,
        deployment_id: DeploymentId,
        step: Step,
        component: str,
        message: str,
        *,
        bytes_done: int = 0,
        bytes_total: int = 0,
    ) -> None:
        self._outlet.progress(
            Progress(
                deployment_id=deployment_id,
                generation=generation,
                step=step,
                component=component,
                message=message,
                at=self._clock.now(),
                bytes_done=bytes_done,
                bytes_total=bytes_total,
            )
        )

    def _refuse_foreign(self, release: Release) -> None:
        for spec in release.components:
            if spec.type not in self._runtime.profile_types:
                offered = ", ".join(kind.value for kind in self._runtime.profile_types) or "nothing"
                raise WorkFailed(
                    Code.UNSUPPORTED_TYPE,
                    f"{spec.name} is of type {spec.type.value}; {self._runtime.name} on this node runs {offered}.",
                    source=spec.name,
                )

    async def _prepare(self, generation: Generation, workload: Workload, spans: OrderSpans) -> None:
        name = workload.spec.name
        with (
            spans.step("pull", name) as told,
            _limit(self._settings.prepare_seconds, f"{name} could not be fetched", name),
        ):
            async with self._slots:
                await self._runtime.prepare(workload, self._teller(generation, workload, told))

    async def _start(self, generation: Generation, workload: Workload, spans: OrderSpans) -> None:
        name, seconds = workload.spec.name, max(workload.spec.timeout_seconds, 0.1)
        checks = [checking.Checks()]
        try:
            with anyio.fail_after(seconds):
                with spans.step("create", name) as told:
                    await self._apply(workload, self._teller(generation, workload, told))
                passing(Point.RUNTIME_BEFORE_HEALTH)
                if workload.spec.wait:
                    with spans.step("health", name):
                        await self._check(generation, workload, checks)
        except TimeoutError as error:
            last = f": {checks[0].message}" if checks[0].message else ""
            raise WorkFailed(
                Code.TIMEOUT, f"{name} was not healthy within {seconds:g} s{last}", source=name
            ) from error

    async def _apply(self, workload: Workload, on_progress: OnProgress) -> None:
        async with self._slots:
            await self._runtime.apply(workload, on_progress)

    async def _check(self, generation: Generation, workload: Workload, checks: list[checking.Checks]) -> None:
        """Asks until the component is healthy or has failed; the caller limits the time, and reads `checks[0]`."""
        name = workload.spec.name
        rules = checking.CheckRules(
            self._settings.health_failures, self._settings.health_spacing_seconds, self._settings.steady_seconds
        )
        started = self._clock.monotonic()
        polls = 0
        while True:
            health = await self._runtime.health(workload)
            seen = () if health.healthy else await self._runtime.observe(workload.deployment_id)
            containers = [each for part in seen if part.component == name for each in part.containers]
            now = checking.Now(self._clock.monotonic(), self._clock.now())
            checks[0], verdict = checking.judge(checks[0], health, containers, now, rules, component=name)
            if verdict.failure is not None:
                raise WorkFailed(Code(verdict.failure.code), verdict.failure.message, source=name)
            if verdict.healthy:
                self.tell(
                    generation,
                    workload.deployment_id,
                    Step.HEALTHY,
                    name,
                    f"healthy after {now.monotonic - started:.1f} s",
                )
                return
            message = checks[0].message or f"waiting for {name} to be healthy"
            message = masked(message, workload.spec.secret_values.values())
            self.tell(generation, workload.deployment_id, Step.CHECKING, name, message)
            await anyio.sleep(checking.poll_delay(polls))
            polls += 1

    async def _remove(self, order: Order, name: str, spans: OrderSpans) -> None:
        self.tell(order.generation, order.deployment_id, Step.STOPPING, name, f"stopping {name}")
        try:
            with (
                spans.step("remove", name),
                _limit(self._settings.remove_seconds, f"{name} could not be removed", name),
            ):
                async with self._slots:
                    await self._runtime.remove(order.deployment_id, name, remove_images=order.remove_images)
                    passing(Point.RUNTIME_AFTER_REMOVE)
        except WorkFailed as error:
            raise WorkFailed(Code.REMOVE_FAILED, str(error), source=name) from error
        if SAFE_NAME.match(name):
            await self._discard(self._folder(order.deployment_id, name))
        self.tell(order.generation, order.deployment_id, Step.REMOVED, name, f"removed {name}")

    def _teller(self, generation: Generation, workload: Workload, told: Told) -> OnProgress:
        def on_progress(step: str, message: str, bytes_done: int, bytes_total: int) -> None:
            told(step)
            self.tell(
                generation,
                workload.deployment_id,
                Step(step),
                workload.spec.name,
                message,
                bytes_done=bytes_done,
                bytes_total=bytes_total,
            )

        return on_progress

    async def _discard(self, folder: Path) -> None:
        await self._in_thread(lambda: shutil.rmtree(folder, ignore_errors=True))

    def _folder(self, *names: str) -> Path:
        """Names come from files that people write: one that is not a plain name must not lead elsewhere."""
        for name in names:
            if not SAFE_NAME.match(name):
                raise WorkFailed(
                    Code.CREATE_FAILED, f"{name!r} cannot be the name of a folder on a node.", source=name
                )
        return self._settings.data.joinpath("components", *names)


def _refuse_lacking(spec: ComponentSpec) -> None:
    names = lacking(spec)
    if names:
        message = f"The secret {names[0]}, which {spec.name} needs, did not come with the order."
        raise WorkFailed(Code.SECRET_MISSING, message, source=spec.name)


@contextmanager
def _limit(seconds: float, what: str, component: str) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise WorkFailed(Code.TIMEOUT, f"{what} within {seconds:g} s", source=component) from error


def _ignore(_step: str, _message: str, _done: int, _total: int) -> None:
    pass
