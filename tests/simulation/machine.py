"""A machine with a container engine. Its containers outlive the node that keeps them; people meddle with them.

How a component behaves is said by its image's tag, so that it is the same wherever it runs: `0.0.3-ok`,
`0.0.4-pulls.2` (the first two pulls fail), `0.0.5-sick` (never healthy), `0.0.6-exits`, `0.0.7-slow`,
`0.0.8-sticky.1` (the first removal fails), `0.0.9-gone` (it can never be pulled), `0.0.10-picky.2` (never healthy at
the second site, and well elsewhere).
"""

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio

from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import CheckResult, CheckRules, ContainerRun, ContainerState, HealthSample
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.ports import Container, IsDue, Observation, OnProgress, Owned, Workload
from homeport.vocabulary import Code, DeploymentId, Digest, NodeId, ProfileType, Step
from tests.simulation.life import Life

Key = tuple[DeploymentId, str]
CHECK = CheckRules(interval_seconds=1.0, retries=2)
NEVER_WELL = frozenset({"sick", "exits", "gone"})


def behaviour(tag: str, place: int) -> tuple[str, int]:
    """At the site of that number."""
    kind, _, count = tag.partition("-")[2].partition(".")
    if kind == "picky":
        return ("sick" if int(count) == place else "ok"), 0
    return kind or "ok", int(count or 0)


@dataclass(slots=True)
class Running:
    id: str
    digest: Digest
    tag: str
    is_running: bool = False
    exit_code: int | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The values that it was made with."""


@dataclass(slots=True)
class Attempt:
    """Of a job."""

    began: float
    seconds: float
    exit_code: int
    is_stopped: bool = False


@dataclass(slots=True, eq=False)
class Machine:
    name: str
    place: int
    """The number of its site, from 1."""
    chance: random.Random
    on_remove: Callable[[Key], None] = lambda key: None
    """Told whenever the node has removed a component on purpose."""
    containers: dict[Key, Running] = field(default_factory=dict)
    images: set[str] = field(default_factory=set)
    engine_down: bool = False
    registry_down: bool = False
    disk_full: bool = False
    keeps_checking: bool = False
    """Whether its components have a check of their own; without one, what runs is healthy."""
    ill: set[Key] = field(default_factory=set)
    """Components whose check fails, whatever is done to them."""
    ever_ill: set[Key] = field(default_factory=set)
    """Those that were so at some time: they may have been restarted."""
    withered: set[str] = field(default_factory=set)
    """Tags that can no longer be pulled."""
    misfortunes: set[Code] = field(default_factory=set)
    """Ways to fail that somebody has brought upon this machine at some time."""
    attempts: Counter[tuple[Key, str]] = field(default_factory=Counter)
    runs_jobs: bool = False
    attempts_of_jobs: dict[str, Attempt] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    """How often each attempt of a job was started."""
    born: int = 0
    leaks: bool = False
    """Sabotage: says that it has removed what it has not."""
    forgets_ids: bool = False
    """Sabotage: makes every container anew when the node starts."""

    def cut_power(self) -> None:
        for each in self.containers.values():
            if each.is_running:
                each.is_running, each.exit_code = False, 137
        for attempt in self.attempts_of_jobs.values():
            if anyio.current_time() - attempt.began < attempt.seconds:
                attempt.is_stopped = True

    def create(self, key: Key, spec: ComponentSpec) -> Running:
        self.born += 1
        made = self.containers[key] = Running(
            f"{self.name}-{self.born}", spec.digest, spec.revision, secrets=dict(spec.secret_values)
        )
        return made


class MachineRuntime:
    """`ports.Runtime` of one life of a node. A call that is cut off may still have reached the engine."""

    name = "simulated"
    profile_types: tuple[ProfileType, ...] = (ProfileType.COMPOSE,)

    def __init__(self, life: Life, machine: Machine) -> None:
        self._life = life
        self._machine = machine

    async def start(self) -> None:
        await self.reach()
        if self._machine.forgets_ids:
            for held in self._machine.containers.values():
                self._machine.born += 1
                held.id = f"{self._machine.name}-{self._machine.born}"

    async def close(self) -> None:
        pass

    async def version(self) -> str:
        await self.reach()
        return "1"

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        await self.reach()
        machine, spec = self._machine, workload.spec
        on_progress(Step.PULLING, f"pulling {spec.revision}", 0, 0)
        kind, count = behaviour(spec.revision, machine.place)
        image = f"{spec.repository}:{spec.revision}"
        if image in machine.images:
            return
        await self.do(machine.chance.uniform(0.05, 2.0))
        if machine.disk_full:
            raise WorkFailed(Code.DISK_FULL, f"no space left on device for {image}", source=spec.name)
        machine.attempts[(workload.deployment_id, spec.name), spec.revision] += 1
        tried = machine.attempts[(workload.deployment_id, spec.name), spec.revision]
        if (
            machine.registry_down
            or kind == "gone"
            or spec.revision in machine.withered
            or (kind == "pulls" and tried <= count)
        ):
            raise WorkFailed(Code.IMAGE_PULL_FAILED, f"{image} cannot be pulled", source=spec.name)
        machine.images.add(image)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        await self.reach()
        machine, spec, key = self._machine, workload.spec, (workload.deployment_id, workload.spec.name)
        held = machine.containers.get(key)
        same = held is not None and held.digest == spec.digest
        if held is not None and same and held.is_running:
            return
        if f"{spec.repository}:{spec.revision}" not in machine.images:
            raise WorkFailed(Code.IMAGE_PULL_FAILED, f"{spec.revision} is not here", source=spec.name)
        on_progress(Step.CREATING, f"creating {spec.name}", 0, 0)
        if held is not None and not same:
            await self.do(machine.chance.uniform(0.05, 1.0), lambda: machine.containers.pop(key, None))
        if not same:
            await self.do(machine.chance.uniform(0.02, 0.3), lambda: machine.create(key, spec))
        slow = 20.0 if behaviour(spec.revision, machine.place)[0] == "slow" else 0.0
        await self.do(slow + machine.chance.uniform(0.02, 0.3), lambda: self._start(key))

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        await self.reach()
        found = sorted((key[1], held) for key, held in self._machine.containers.items() if key[0] == deployment_id)
        return [
            Observation(
                name,
                held.digest,
                (Container(held.id, name, running=held.is_running, exit_code=held.exit_code),),
            )
            for name, held in found
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        await self.reach()
        name = workload.spec.name
        held = self._machine.containers.get((workload.deployment_id, name))
        if held is None:
            return ()
        run = ContainerRun(held.id)
        if not held.is_running:
            return (HealthSample(name, run, ContainerState.STOPPED, exit_code=held.exit_code),)
        is_sick = behaviour(held.tag, self._machine.place)[0] == "sick"
        is_sick |= (workload.deployment_id, name) in self._machine.ill
        if not is_sick and not self._machine.keeps_checking:
            return (HealthSample(name, run, ContainerState.READY),)
        answer = CheckResult(False, "GET /healthz answered 500") if is_sick else CheckResult(True)
        result = answer if is_due(run, CHECK) else None
        return (HealthSample(name, run, rules=CHECK, result=result),)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        await self.reach()
        yield b""

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        await self.reach()
        machine, key = self._machine, (deployment_id, component)
        held = machine.containers.get(key)
        if held is None:
            return
        kind, count = behaviour(held.tag, machine.place)
        await self.do(machine.chance.uniform(0.05, 1.5))
        machine.attempts[key, f"remove {held.tag}"] += 1
        if kind == "sticky" and machine.attempts[key, f"remove {held.tag}"] <= count:
            raise WorkFailed(Code.REMOVE_FAILED, f"{component} is busy", source=component)
        await self.do(0.01, lambda: self._take_away(key))

    async def owned(self) -> Sequence[Owned]:
        await self.reach()
        return [Owned(NodeId(self._machine.name), *key) for key in sorted(self._machine.containers)]

    async def remove_owned(self, item: Owned) -> None:
        await self.remove(item.deployment_id, item.component, remove_images=False)

    def _take_away(self, key: Key) -> None:
        self._machine.on_remove(key)
        if not self._machine.leaks:
            self._machine.containers.pop(key, None)

    def _start(self, key: Key) -> None:
        held = self._machine.containers.get(key)
        if held is None:
            return
        held.is_running, held.exit_code = True, None
        if behaviour(held.tag, self._machine.place)[0] == "exits":
            held.is_running, held.exit_code = False, 1

    async def do(self, seconds: float, effect: Callable[[], object] = lambda: None) -> None:
        """Takes its time, then has its effect. Cut off in between, the engine may have had it all the same."""
        try:
            await anyio.sleep(seconds)
        except BaseException:
            if self._machine.chance.random() < 0.3:
                effect()
            raise
        await self._life.breathe()
        effect()

    async def reach(self) -> None:
        await self._life.breathe()
        await anyio.lowlevel.checkpoint()
        if self._machine.engine_down:
            await anyio.sleep(0.1)
            raise EngineUnavailable("The container engine does not answer.", hint="Start it.")
