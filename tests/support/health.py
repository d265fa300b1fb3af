"""What the node's health rule makes of a runtime's samples."""

import time
from datetime import UTC, datetime
from functools import partial

import anyio

from homeport.core.node.health import ComponentHealth, HealthVerdict, Now, is_due, judge
from homeport.ports import Runtime, Workload


class HealthWatch:
    """Looks at one component again and again, and remembers what it saw, as the node does."""

    def __init__(self, runtime: Runtime, workload: Workload, *, steady_seconds: float = 0.1) -> None:
        self._runtime = runtime
        self._workload = workload
        self._steady_seconds = steady_seconds
        self._seen = ComponentHealth()

    async def look(self) -> HealthVerdict:
        samples = await self._runtime.sample_health(self._workload, partial(is_due, self._seen, now=time.monotonic()))
        now = Now(time.monotonic(), datetime.now(UTC))
        component = self._workload.spec.name
        self._seen, verdict = judge(
            self._seen, samples, now, component=component, steady_seconds=self._steady_seconds
        )
        return verdict

    async def settle(self, *, seconds: float = 60.0) -> HealthVerdict:
        """Looks until the verdict is known."""
        with anyio.fail_after(seconds):
            while True:
                verdict = await self.look()
                if verdict.healthy is not None:
                    return verdict
                await anyio.sleep(0.1)


async def settle(runtime: Runtime, workload: Workload, *, seconds: float = 60.0) -> HealthVerdict:
    return await HealthWatch(runtime, workload).settle(seconds=seconds)
