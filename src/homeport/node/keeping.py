"""Keeps what was installed running, with or without a site: compares the journal with what the engine shows, and
starts again what is missing, stopped or different. By level, never by event, so a restart of the node, a crash and
a power cut are all the same case, and what runs correctly is not touched.
"""

import logging
from functools import partial

from homeport.core.model.deployment import Release
from homeport.core.node.backoff import Backoff, BackoffRules, after_repair, may_repair
from homeport.core.node.entry import Entry
from homeport.errors import HomeportError
from homeport.node.drift import Repair, drift
from homeport.node.executor import Executor
from homeport.node.journal import Journal
from homeport.node.metrics import NodeMetrics
from homeport.node.work import Work
from homeport.ports import Clock, Runtime
from homeport.vocabulary import DeploymentId, Generation

log = logging.getLogger("homeport.node")


class Keeper:
    def __init__(
        self,
        *,
        runtime: Runtime,
        journal: Journal,
        work: Work,
        executor: Executor,
        metrics: NodeMetrics,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._journal = journal
        self._work = work
        self._executor = executor
        self._metrics = metrics
        self._clock = clock
        self._rules = BackoffRules()
        self._backoffs: dict[tuple[DeploymentId, str], Backoff] = {}

    async def keep(self) -> None:
        """One round over all deployments."""
        entries = self._journal.entries
        self._backoffs = {key: value for key, value in self._backoffs.items() if key[0] in entries}
        for deployment_id, entry in entries.items():
            release = entry.kept_release
            if release is None or self._executor.is_busy(deployment_id):
                continue
            repairs = await self._due(release)
            # Asked again, for an order may have come while the engine was looked at.
            if repairs and self._journal.entries.get(deployment_id) is entry:
                self._executor.repair(deployment_id, partial(self._repair, entry.order.generation, release, repairs))

    async def revive(self, entry: Entry) -> None:
        """Before an interrupted order is resumed: when nothing of the deployment runs, as after a power cut, the
        last good release comes first. The order may need an uplink that is not there."""
        if entry.good is None or entry.order.release is None:
            return
        try:
            observed = await self._runtime.observe(entry.order.deployment_id)
        except HomeportError:
            return
        if not any(seen.is_running for seen in observed):
            await self._repair(entry.order.generation, entry.good, drift(entry.good, observed))

    async def _due(self, release: Release) -> tuple[Repair, ...]:
        try:
            observed = await self._runtime.observe(release.deployment_id)
        except HomeportError as error:
            log.warning("cannot see what runs", extra={"deployment": release.deployment_id, "error": str(error)})
            return ()
        now = self._clock.monotonic()
        return tuple(
            repair
            for repair in drift(release, observed)
            if may_repair(self._backoffs.get((release.deployment_id, repair.spec.name)), now)
        )

    async def _repair(self, generation: Generation, release: Release, repairs: tuple[Repair, ...]) -> None:
        for repair in repairs:
            key = release.deployment_id, repair.spec.name
            fields = {"deployment": key[0], "component": key[1], "why": repair.why}
            try:
                await self._work.restore(generation, release.deployment_id, repair.spec, repair.why)
            except (HomeportError, TimeoutError) as error:
                self._metrics.restores_failed.inc()
                log.warning("component could not be restored", extra={**fields, "error": str(error)})
            else:
                self._metrics.restores.inc()
                log.info("component restored", extra=fields)
            finally:
                now = self._clock.monotonic()
                self._backoffs[key] = after_repair(self._backoffs.get(key), now, self._rules)
