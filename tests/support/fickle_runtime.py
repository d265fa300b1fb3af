"""A null runtime whose components fall ill, hang, or cannot be seen when a test says so."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio

from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.model.health import CheckResult, CheckRules, ContainerRun, HealthSample
from homeport.ports import IsDue, Observation, Workload
from homeport.vocabulary import DeploymentId

RULES = CheckRules(interval_seconds=0.1, retries=2)


class FickleRuntime(NullRuntime):
    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.sick: dict[str, str] = {}
        """What the health check of a component says from now on."""
        self.hangs: set[str] = set()
        self.unlistable: set[DeploymentId] = set()
        self.asked = 0
        self.looks = 0

    def start_again(self, component: str) -> None:
        """As an engine does with `restart: always`: the same container, another run."""
        for parts in self._running.values():
            parts[component] = replace(parts[component], started_at=datetime.now(UTC).isoformat())

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        self.asked += 1
        name = workload.spec.name
        if name in self.hangs:
            await anyio.sleep_forever()
        (seen,) = [each for each in await super().observe(workload.deployment_id) if each.component == name]
        run = ContainerRun(seen.containers[0].id, seen.containers[0].started_at)
        result = CheckResult(name not in self.sick, self.sick.get(name, ""))
        return (HealthSample(name, run, rules=RULES, result=result if is_due(run, RULES) else None),)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        self.looks += 1
        if deployment_id in self.unlistable:
            raise KeyError("Labels")
        return await super().observe(deployment_id)
