"""Carries out one order on this machine. Everything is pulled before anything that runs is touched; components
start in the order of the release, each healthy before the next. Obsolete components are removed last, but before the
first new component, which may need their port.

Every call to the runtime is idempotent, so work that was cancelled or killed is simply repeated from the start.
"""

import itertools
import math
import re
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.order import Order, Progress
from homeport.core.node import health
from homeport.core.node.output import ended, last_lines
from homeport.core.node.watch import Announcement
from homeport.core.secrets import masked, missing_values
from homeport.errors import TransientError, WorkFailed
from homeport.failpoints import Point, passing
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.link.news import Outlet
from homeport.node.orders.tracing import OnStep, OrderSpans
from homeport.node.settings import NodeSettings
from homeport.node.watch.drift import outdated
from homeport.ports import Clock, InThread, KeepsData, OnProgress, Runtime, Workload
from homeport.vocabulary import Code, DeploymentId, Generation, Step

log = get_log("homeport.node")

Note = Callable[[Progress], Awaitable[None]]
"""Stores a report until the site has it, across restarts."""
PORT_TAKEN = re.compile(r"\b(port|address)\b.*\b(in use|allocated|taken)\b|\bbind\b", re.IGNORECASE | re.DOTALL)
"""How engines report that a published port is in use."""
OUTPUT_SECONDS_MAX = 2.0
OUTPUT_LINES = 20
OUTPUT_BYTES_MAX = 16_384
"""How much output of a failed component is read."""
SAFE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


@dataclass(slots=True)
class Trail:
    """How far the work on an order has progressed."""

    spans: OrderSpans
    has_changed: bool = False
    """Whether anything that may have been running was touched."""


class OrderWork:
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
        """Without `note`, events without an order are sent like all progress, and lost at a restart."""
        self._settings = settings
        self._runtime = runtime
        self._outlet = outlet
        self._clock = clock
        self._in_thread = in_thread
        self._note = note
        self.site_name: Callable[[], str] = str
        """What the site is called; "" while that is not known."""
        self.on_started: Callable[[Workload], None] = lambda workload: None
        """Called for every component that was started, whether or not it is still running."""
        self._slots = anyio.Semaphore(settings.parallel)

    async def apply(self, order: Order, release: Release, leftovers: Iterable[str], trail: Trail) -> None:
        """Makes the release run, or raises WorkFailed. `leftovers` names components of earlier releases."""
        with _limit(order.limit_seconds or math.inf, f"{release.name} was not installed", ""):
            await self._apply_all(order, release, leftovers, trail)

    async def _apply_all(self, order: Order, release: Release, leftovers: Iterable[str], trail: Trail) -> None:
        self._refuse_foreign(release)
        for spec in release.components:
            _refuse_missing_values(spec)
        for spec in release.components:
            await self._prepare(
                order.generation, self.workload(release.deployment_id, spec, release.name), trail.spans
            )
        passing(Point.RUNTIME_AFTER_PULL)
        trail.has_changed = True
        observed = await self._runtime.observe(release.deployment_id)
        present = {seen.component for seen in observed}
        leaving = sorted((present | set(leftovers)) - {spec.name for spec in release.components})
        for position, spec in enumerate(release.components):
            if spec.name not in present:
                # A new component may need the port of an obsolete one: a renamed component, another profile.
                leaving = await self._remove_all(order, leaving, trail.spans)
            later = outdated(release.components[position + 1 :], observed)
            await self._start_or_make_room(order, release, spec, later, trail.spans)
        await self._remove_all(order, leaving, trail.spans)

    async def _remove_all(self, order: Order, names: Iterable[str], spans: OrderSpans) -> list[str]:
        """Returns the names left to remove: none."""
        for name in names:
            await self._remove(order, name, spans)
        return []

    async def _start_or_make_room(
        self, order: Order, release: Release, spec: ComponentSpec, later: Sequence[str], spans: OrderSpans
    ) -> None:
        """Where a port is still used by the old run of a component that comes later, that one is stopped first."""
        workload = self.workload(release.deployment_id, spec, release.name)
        try:
            await self._start(order.generation, workload, spans)
        except WorkFailed as error:
            if not later or not PORT_TAKEN.search(str(error)):
                raise
            for name in later:
                message = f"stopping {name}, whose port {spec.name} may need"
                self.tell(order.generation, release.deployment_id, Step.STOPPING, name, message)
                async with self._slots:
                    await self._runtime.remove(release.deployment_id, name, remove_images=False)
            await self._start(order.generation, workload, spans)

    async def remove(self, order: Order, components: Iterable[str], trail: Trail) -> None:
        """Removes every component, known or found, or raises WorkFailed with REMOVE_FAILED."""
        present = {seen.component for seen in await self._runtime.observe(order.deployment_id)}
        names = sorted(present | set(components))
        for name in names:
            await self._remove(order, name, trail.spans)
        if order.remove_data_of and isinstance(self._runtime, KeepsData):
            for name in names:
                with _limit(self._settings.remove_seconds, f"the data of {name} could not be removed", name):
                    await self._runtime.remove_data(order.deployment_id, name, name=order.remove_data_of)
                message = f"removed the data of {name}"
                self.tell(order.generation, order.deployment_id, Step.REMOVED, name, message)
        await self._discard(self._folder(order.deployment_id))

    async def restore(self, generation: Generation, release: Release, spec: ComponentSpec, why: str) -> None:
        """Starts a component again. First with what was pulled before, because there may be no uplink."""
        _refuse_missing_values(spec)
        deployment_id = release.deployment_id
        workload = self.workload(deployment_id, spec, release.name)
        await self._found(generation, deployment_id, Step.DRIFTED, spec.name, why)
        try:
            await self._apply(workload, _ignore)
        except WorkFailed:
            await self._fetch(workload)
            await self._apply(workload, _ignore)
        await self._found(generation, deployment_id, Step.RESTORED, spec.name, f"{why}; started again")

    async def restart(self, generation: Generation, release: Release, spec: ComponentSpec, why: str) -> None:
        """Removes a running component and starts it again. Nothing is touched before all that it needs is pulled."""
        _refuse_missing_values(spec)
        deployment_id = release.deployment_id
        workload = self.workload(deployment_id, spec, release.name)
        await self._found(generation, deployment_id, Step.DRIFTED, spec.name, f"restarting {spec.name}: {why}")
        await self._fetch(workload)
        async with self._slots:
            with _limit(self._settings.remove_seconds, f"{spec.name} could not be stopped", spec.name):
                await self._runtime.remove(deployment_id, spec.name, remove_images=False)
        await self._apply(workload, _ignore)
        await self._found(generation, deployment_id, Step.RESTORED, spec.name, f"{spec.name} was restarted: {why}")

    async def tell_health(self, generation: Generation, deployment_id: DeploymentId, news: Announcement) -> None:
        """With the steps that a site of any version knows."""
        step = Step.RESTORED if news.healthy else Step.DRIFTED
        await self._found(generation, deployment_id, step, news.component, news.why, healthy=news.healthy)

    async def _fetch(self, workload: Workload) -> None:
        name = workload.spec.name
        async with self._slots:
            with _limit(self._settings.prepare_seconds, f"{name} could not be fetched", name):
                await self._runtime.prepare(workload, _ignore)

    async def _found(
        self,
        generation: Generation,
        deployment_id: DeploymentId,
        step: Step,
        component: str,
        message: str,
        *,
        healthy: bool | None = None,
    ) -> None:
        """Without an order the site does not wait for it: it is stored first, where possible."""
        progress = Progress(deployment_id, generation, step, component, message, self._clock.now(), healthy=healthy)
        try:
            if self._note is None:
                self._outlet.progress(progress)
            else:
                await self._note(progress)
                self._outlet.wake()
        except WorkFailed as error:
            log.warning("drift report not persisted", error=str(error))
            self._outlet.progress(progress)

    def workload(self, deployment_id: DeploymentId, spec: ComponentSpec, name: str = "") -> Workload:
        return Workload(deployment_id, spec, self._folder(deployment_id, spec.name), name, self.site_name())

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
        with spans.step("pull", name) as on_step:
            async with self._slots:
                with _limit(self._settings.prepare_seconds, f"{name} could not be fetched", name):
                    await self._runtime.prepare(workload, self._progress(generation, workload, on_step))

    async def _start(self, generation: Generation, workload: Workload, spans: OrderSpans) -> None:
        name, seconds = workload.spec.name, max(workload.spec.timeout_seconds, 0.1)
        last = [""]
        try:
            with anyio.fail_after(None) as limit:
                with spans.step("create", name) as on_step:
                    on_progress = self._progress(generation, workload, on_step)
                    await self._apply(workload, on_progress, on_slot=partial(_begin, limit, seconds))
                passing(Point.RUNTIME_BEFORE_HEALTH)
                if workload.spec.wait:
                    with spans.step("health", name):
                        await self._check(generation, workload, last)
        except TimeoutError as error:
            message = f"{name} was not healthy within {seconds:g} s" + (f": {last[0]}" if last[0] else "")
            message = await self._with_output(message, workload)
            raise WorkFailed(Code.TIMEOUT, message, source=name) from error

    async def _apply(
        self,
        workload: Workload,
        on_progress: OnProgress,
        *,
        on_slot: Callable[[], None] = lambda: None,
    ) -> None:
        """A component that ended right after its start is detected here, before its health is checked."""
        try:
            async with self._slots:
                on_slot()
                try:
                    await self._runtime.apply(workload, on_progress)
                finally:
                    self.on_started(workload)
        except WorkFailed as error:
            if error.code != Code.EXITED:
                raise
            message = await self._with_output(str(error), workload)
            raise WorkFailed(Code.EXITED, message, source=error.source) from error

    async def _check(self, generation: Generation, workload: Workload, last: list[str]) -> None:
        """Polls until the component is healthy or has failed; the caller sets the timeout, and reads `last[0]`."""
        name, seen = workload.spec.name, health.ComponentHealth()
        started = self._clock.monotonic()
        for polls in itertools.count():
            is_due = partial(health.is_due, seen, now=self._clock.monotonic())
            samples = await self._runtime.sample_health(workload, is_due)
            now = health.Now(self._clock.monotonic(), self._clock.now())
            steady_seconds = self._settings.steady_seconds
            seen, verdict = health.judge(seen, samples, now, component=name, steady_seconds=steady_seconds)
            if verdict.failure is not None:
                message = await self._with_output(verdict.failure.message, workload)
                raise WorkFailed(Code(verdict.failure.code), message, source=name)
            if verdict.healthy:
                took = f"healthy after {now.monotonic - started:.1f} s"
                self.tell(generation, workload.deployment_id, Step.HEALTHY, name, took)
                return
            last[0] = masked(verdict.message, workload.spec.secret_values.values())
            self.tell(generation, workload.deployment_id, Step.CHECKING, name, health.progress_of(seen, last[0]))
            await anyio.sleep(health.poll_delay(polls))

    async def _with_output(self, message: str, workload: Workload) -> str:
        """The message, and the last output of the failed component. Reading it must neither take long nor hide the
        failure, also when the start times out in the meantime."""
        found = b""
        with anyio.move_on_after(OUTPUT_SECONDS_MAX, shield=True):
            try:
                async for chunk in self._runtime.logs(workload, tail=OUTPUT_LINES):
                    found = (found + chunk)[-OUTPUT_BYTES_MAX:]
            except (WorkFailed, TransientError) as error:
                log.info("output of a failed component not read", component=workload.spec.name, error=str(error))
        said = last_lines(found, workload.spec.secret_values.values())
        return f"{ended(message)} Its last output: {said}" if said else message

    async def _remove(self, order: Order, name: str, spans: OrderSpans) -> None:
        self.tell(order.generation, order.deployment_id, Step.STOPPING, name, f"stopping {name}")
        try:
            # Waiting for a slot counts here: its site gives up on a removal after about as long.
            with (
                spans.step("remove", name),
                _limit(self._settings.remove_seconds, f"{name} could not be removed", name),
            ):
                async with self._slots:
                    await self._runtime.remove(order.deployment_id, name, remove_images=order.remove_images)
                    passing(Point.RUNTIME_AFTER_REMOVE)
        except WorkFailed as error:
            raise WorkFailed(Code.REMOVE_FAILED, str(error), source=name) from error
        if SAFE_NAME.fullmatch(name):
            await self._discard(self._folder(order.deployment_id, name))
        self.tell(order.generation, order.deployment_id, Step.REMOVED, name, f"removed {name}")

    def _progress(self, generation: Generation, workload: Workload, on_step: OnStep) -> OnProgress:
        def on_progress(step: str, message: str, bytes_done: int, bytes_total: int) -> None:
            on_step(step)
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
        """Names come from user-written files: one that is not a plain name must not lead elsewhere."""
        for name in names:
            if not SAFE_NAME.fullmatch(name):
                raise WorkFailed(
                    Code.CREATE_FAILED, f"{name!r} cannot be the name of a folder on a node.", source=name
                )
        return self._settings.data.joinpath("components", *names)


def _refuse_missing_values(spec: ComponentSpec) -> None:
    names = missing_values(spec)
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


def _begin(limit: anyio.CancelScope, seconds: float) -> None:
    """Its time begins when it has a slot: on a busy node it may wait long for others."""
    limit.deadline = anyio.current_time() + seconds


def _ignore(_step: str, _message: str, _done: int, _total: int) -> None:
    pass
