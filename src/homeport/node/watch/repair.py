"""Keeps what was installed running and healthy, with or without a site: compares the journal with what the engine
shows, starts again what is missing, stopped or different, and restarts what became unhealthy. Level-based: a restart
of the node, a crash and a power cut are all the same case, and what runs correctly is not touched.

Where that does not help, the site is notified that the deployment does not run, or is unhealthy.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.node.backoff import BackoffRules, RepairBackoff, after_repair, may_repair
from homeport.core.node.entry import JournalEntry
from homeport.core.node.watch import ObservedHealth, Seen, WatchRules, look
from homeport.core.secrets import masked, secret_values
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.journal.journal import Journal
from homeport.node.orders.executor import Executor
from homeport.node.orders.work import OrderWork
from homeport.node.pages.metrics import NodeMetrics
from homeport.node.watch.drift import Repair, drift
from homeport.node.watch.health import HealthWatch
from homeport.ports import Clock, Observation, Runtime, Workload
from homeport.vocabulary import DeploymentId, Generation, OnUnhealthy

log = get_log("homeport.node")

RESTARTS_MAX: Final = 5
"""Consecutive restarts of an unhealthy component. Then it is left alone for `BackoffRules.forget_seconds`."""

Key = tuple[DeploymentId, str]


@dataclass(slots=True)
class _Report:
    """What was reported to the site, and for which order."""

    generation: Generation
    watch: ObservedHealth


class RepairLoop:
    def __init__(
        self,
        *,
        runtime: Runtime,
        journal: Journal,
        work: OrderWork,
        executor: Executor,
        metrics: NodeMetrics,
        clock: Clock,
        rules: WatchRules | None = None,
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._work = work
        self._executor = executor
        self._metrics = metrics
        self._clock = clock
        self._backoff_rules = BackoffRules()
        self._rules = rules or WatchRules()
        self.on_observed: Callable[[Workload, Observation], None] = lambda workload, seen: None
        """Called for every component that exists, in each round."""
        self._backoffs: dict[Key, RepairBackoff] = {}
        self._failures: dict[Key, str] = {}
        """Why a component could not be started again."""
        self._reports: dict[DeploymentId, _Report] = {}
        self.health = HealthWatch(runtime, work, clock)

    async def keep(self) -> None:
        """One round over all deployments. An exception in one does not affect the others."""
        entries = self._journal.deployments
        self._forget_gone()
        for deployment_id, entry in entries.items():
            release = entry.kept_release
            if release is None or self._executor.is_busy(entry.order.key):
                continue
            try:
                await self._keep_one(entry, release)
            except Exception:
                # Last resort for this deployment's round: the others are still to be checked.
                log.exception("deployment check failed", deployment=deployment_id)

    async def revive(self, entry: JournalEntry) -> None:
        """Before an interrupted order is resumed: when nothing of the deployment runs, as after a power cut, the last
        good release is started first. The order may need an uplink that is not there."""
        if entry.good is None or entry.order.release is None:
            return
        observed = await self._observe(entry.order.deployment_id)
        if observed is not None and not any(seen.is_running for seen in observed):
            await self._repair(entry.order.generation, entry.good, drift(entry.good, observed))

    async def _keep_one(self, entry: JournalEntry, release: Release) -> None:
        observed = await self._observe(release.deployment_id)
        if observed is None:
            return
        self._pass_on(release, observed)
        broken = drift(release, observed)
        now = self._clock.monotonic()
        due = tuple(each for each in broken if may_repair(self._backoffs.get(self._key(release, each)), now))
        health = dict(self.health.look(release, observed))
        seen = health | {each.spec.name: self._seen_broken(release, each, is_due=each in due) for each in broken}
        for name in health.keys() - {each.spec.name for each in broken}:
            self._failures.pop((release.deployment_id, name), None)
        # Checked again, because an order may have arrived while the engine was queried.
        if self._journal.entries.get(entry.order.key) is not entry:
            return
        await self._tell(entry, release, seen)
        if due:
            job: Callable[[], Awaitable[None]] = partial(self._repair, entry.order.generation, release, due)
            self._executor.repair(entry.order.key, job)
        elif unhealthy := [each for each in release.components if self._must_restart(entry, each, health)]:
            spec = unhealthy[0]
            why = self._hidden(release, health[spec.name].why)
            self._executor.repair(entry.order.key, partial(self._restart, entry.order.generation, release, spec, why))

    def _pass_on(self, release: Release, observed: Sequence[Observation]) -> None:
        specs = {spec.name: spec for spec in release.components}
        for seen in observed:
            if (spec := specs.get(seen.component)) is not None:
                self.on_observed(self._work.workload(release.deployment_id, spec, release.name), seen)

    async def _observe(self, deployment_id: DeploymentId) -> Sequence[Observation] | None:
        try:
            return await self._runtime.observe(deployment_id)
        except HomeportError as error:
            log.warning("container list failed", deployment=deployment_id, error=str(error))
            return None

    def _seen_broken(self, release: Release, repair: Repair, *, is_due: bool) -> Seen:
        """A first repair is not reported yet; one that failed, or a component that breaks repeatedly,
        is."""
        failure = self._failures.get(self._key(release, repair))
        if failure is not None:
            return Seen(False, f"{repair.why} and could not be started again: {failure}")
        return Seen(None) if is_due else Seen(False, f"{repair.why}; it keeps breaking")

    def _must_restart(self, entry: JournalEntry, spec: ComponentSpec, health: dict[str, Seen]) -> bool:
        seen = health.get(spec.name)
        if seen is None or seen.healthy is not False or seen.is_restarting:
            return False
        if entry.order.on_unhealthy is not OnUnhealthy.RESTART:
            return False
        backoff, now = self._backoffs.get((entry.order.deployment_id, spec.name)), self._clock.monotonic()
        is_spent = (
            backoff is not None
            and backoff.attempts >= RESTARTS_MAX
            and now - backoff.last <= self._backoff_rules.forget_seconds
        )
        return not is_spent and may_repair(backoff, now)

    async def _tell(self, entry: JournalEntry, release: Release, seen: dict[str, Seen]) -> None:
        deployment_id, generation = release.deployment_id, entry.order.generation
        report = self._reports.get(deployment_id)
        if report is None or report.generation != generation:
            report = _Report(
                generation,
                ObservedHealth(
                    unhealthy=entry.unhealthy is not None, why=entry.unhealthy.why if entry.unhealthy else ""
                ),
            )
            self._reports[deployment_id] = report
        hidden = {name: Seen(each.healthy, self._hidden(release, each.why)) for name, each in seen.items()}
        report.watch, news = look(report.watch, hidden, self._clock.monotonic(), self._rules)
        if news is None:
            return
        said = log.info if news.healthy else log.warning
        said("health changed", deployment=deployment_id, component=news.component, why=news.why)
        self._metrics.unhealthy.labels("healthy" if news.healthy else "unhealthy").inc()
        await self._work.tell_health(generation, deployment_id, news)

    def _hidden(self, release: Release, why: str) -> str:
        """A program may have printed its secrets."""
        return masked(why, secret_values(release))

    async def _repair(self, generation: Generation, release: Release, repairs: tuple[Repair, ...]) -> None:
        for repair in repairs:
            work = partial(self._work.restore, generation, release, repair.spec, repair.why)
            await self._attempt(release, repair.spec, repair.why, work)

    async def _restart(self, generation: Generation, release: Release, spec: ComponentSpec, why: str) -> None:
        work = partial(self._work.restart, generation, release, spec, why)
        await self._attempt(release, spec, why, work)

    async def _attempt(
        self, release: Release, spec: ComponentSpec, why: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        key = release.deployment_id, spec.name
        fields = {"deployment": key[0], "component": key[1], "why": why}
        try:
            await work()
        except Exception as error:
            # In any case the next round retries, later each time, and the site is notified.
            expected = isinstance(error, HomeportError | TimeoutError)
            self._failures[key] = self._hidden(
                release, str(error) if expected else f"{type(error).__name__}: {error}"
            )
            self._metrics.restores_failed.inc()
            if expected:
                log.warning("component repair failed", reason=self._failures[key], **fields)
            else:
                log.exception("component repair failed", error=error, **fields)
        else:
            self._failures.pop(key, None)
            self._metrics.restores.inc()
            log.info("component restored", **fields)
        finally:
            now = self._clock.monotonic()
            self._backoffs[key] = after_repair(self._backoffs.get(key), now, self._backoff_rules)

    def _forget_gone(self) -> None:
        entries = self._journal.deployments
        self._backoffs = {key: value for key, value in self._backoffs.items() if key[0] in entries}
        self._failures = {key: value for key, value in self._failures.items() if key[0] in entries}
        self._reports = {key: value for key, value in self._reports.items() if key in entries}
        self.health.keep_only(entries.keys())

    @staticmethod
    def _key(release: Release, repair: Repair) -> Key:
        return release.deployment_id, repair.spec.name
