"""Checks the health of installed components, each at the interval of its own check, and caches the results.

A check may hang until its timeout. So it runs in its own task, and a round uses the last result: one component that
does not respond delays nothing else.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from homeport.core.model.deployment import ComponentSpec, Release
from homeport.core.model.health import CheckRules, ContainerState, HealthSample
from homeport.core.node.health import ComponentHealth, Now, is_due, judge
from homeport.core.node.watch import STARTS_KEPT, Seen, keeps_restarting
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.node.orders.work import OrderWork
from homeport.ports import Clock, Observation, Runtime
from homeport.vocabulary import DeploymentId

log = get_log("homeport.node")

AT_ONCE_MAX: Final = 4
ASK_SECONDS_MAX: Final = 60.0
RESTART_LOOP_SECONDS: Final = 60.0
"""A component without a check that its engine restarts three times, faster than this, is unhealthy."""

Key = tuple[DeploymentId, str]
Runs = frozenset[tuple[str, str]]
"""Id and start of each container."""


@dataclass(slots=True)
class _Asked:
    """The known health of one running component."""

    runs: Runs
    """The containers that the engine shows; the result is valid only for these."""
    health: ComponentHealth = field(default_factory=ComponentHealth)
    seen: Seen = field(default_factory=lambda: Seen(None))
    again_at: float = 0.0
    is_asking: bool = False
    starts: tuple[float, ...] = ()


class HealthWatch:
    def __init__(self, runtime: Runtime, work: OrderWork, clock: Clock) -> None:
        self._runtime = runtime
        self._work = work
        self._clock = clock
        self._asked: dict[Key, _Asked] = {}
        self._slots = anyio.Semaphore(AT_ONCE_MAX)
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs the checks in the background, until cancelled."""
        async with anyio.create_task_group() as self._group:
            task_status.started()
            await anyio.sleep_forever()

    def keep_only(self, deployments: Collection[DeploymentId]) -> None:
        self._asked = {key: value for key, value in self._asked.items() if key[0] in deployments}

    def look(self, release: Release, observed: Sequence[Observation]) -> Mapping[str, Seen]:
        """The known health of each running component; starts the checks that are due."""
        running = {each.component: each for each in observed if each.is_running}
        return {
            spec.name: self._look(release.deployment_id, spec, running[spec.name])
            for spec in release.components
            if spec.name in running
        }

    def _look(self, deployment_id: DeploymentId, spec: ComponentSpec, observed: Observation) -> Seen:
        now, runs = self._clock.monotonic(), frozenset((each.id, each.started_at) for each in observed.containers)
        asked = self._asked.setdefault((deployment_id, spec.name), _Asked(runs))
        if asked.runs != runs:
            before = asked.runs
            asked.runs, asked.seen, asked.again_at = runs, Seen(None), now
            if _ids(runs) == _ids(before):  # Another container was created on purpose.
                asked.starts = (*asked.starts, now)[-STARTS_KEPT:]
        if not asked.is_asking and now >= asked.again_at:
            assert self._group is not None, "run() comes first"
            asked.is_asking = True
            self._group.start_soon(self._ask, deployment_id, spec, asked)
        if keeps_restarting(asked.starts, now, seconds=RESTART_LOOP_SECONDS):
            return Seen(False, f"{spec.name} keeps restarting", is_restarting=True)
        return asked.seen

    async def _ask(self, deployment_id: DeploymentId, spec: ComponentSpec, asked: _Asked) -> None:
        runs, workload = asked.runs, self._work.workload(deployment_id, spec)
        due = partial(is_due, asked.health, now=self._clock.monotonic())
        try:
            async with self._slots:
                with anyio.fail_after(ASK_SECONDS_MAX):
                    samples = await self._runtime.sample_health(workload, due)
            now = Now(self._clock.monotonic(), self._clock.now())
            asked.health, verdict = judge(asked.health, samples, now, component=spec.name)
            if asked.runs == runs:
                asked.seen = Seen(verdict.healthy, f"{spec.name}: {verdict.message}")
                asked.again_at = now.monotonic + (_pause_seconds(samples) if verdict.healthy else 0.0)
        except (HomeportError, TimeoutError) as error:
            # The last result of the check stays valid.
            log.warning(
                "health check could not be run", deployment=deployment_id, component=spec.name, error=str(error)
            )
        except Exception:
            # Last resort for this check: the checks of other components continue.
            log.exception("health check failed with an internal error", deployment=deployment_id)
        finally:
            asked.is_asking = False


def _ids(runs: Runs) -> frozenset[str]:
    return frozenset(container for container, _ in runs)


def _pause_seconds(samples: Sequence[HealthSample]) -> float:
    """Until another check can bring another result. For runs without a check that is never: a run that ends, or is
    replaced, is detected by observing what runs."""
    intervals = [each.rules.interval_seconds for each in samples if each.rules is not None]
    if any(each.state is not ContainerState.RUNNING for each in samples):
        intervals.append(CheckRules().interval_seconds)
    return min(intervals, default=math.inf)
