"""Runs one seed from its beginning to its verdict."""

import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from homeport.vocabulary import Happening, State
from tests.simulation.invariants import at_rest, broken, disturbed, unsettled
from tests.simulation.loop import run
from tests.simulation.roles import Node
from tests.simulation.scenario import Scenario
from tests.simulation.trace import Trace, who
from tests.simulation.world import Sabotage, World

SETTLE_SECONDS = 900.0
CALM_SECONDS = 40.0
SHARED_MEMORY = Path("/dev/shm")
"""A journal's fsync costs nothing there."""
EXPECTED = frozenset(
    {
        *(f"action {action.__name__}" for action, _ in Scenario.ACTIONS),
        *(f"happening {happening}" for happening in Happening if happening is not Happening.RESTATED),
        *(f"end {state}" for state in (State.INSTALLED, State.FAILED)),
    }
)


@dataclass(slots=True)
class Outcome:
    seed: int
    problems: list[str] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    """How often each thing came about, so that nobody takes a fleet in which nothing happens for one that works."""


def simulate(seed: int, sabotage: Sabotage | None = None) -> Outcome:
    outcome, began = Outcome(seed), time.perf_counter()
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    temporary = tempfile.TemporaryDirectory(prefix="homeport-simulation-", dir=place)
    with outcome.trace.listening(), temporary as folder:
        run(lambda: _unfold(outcome, Path(folder), sabotage))
    outcome.real_seconds = time.perf_counter() - began
    return outcome


async def _unfold(outcome: Outcome, folder: Path, sabotage: Sabotage | None) -> None:
    who.set("world")
    async with anyio.create_task_group() as air:
        seed = str(outcome.seed)
        world = World(seed, random.Random(seed), outcome.trace, air, folder, sabotage)
        scenario = Scenario(world, random.Random(f"{seed}/scenario"))
        await scenario.unfold()
        scenario.heal()
        outcome.problems = await _settle(world)
        if not outcome.problems:
            outcome.problems = await _calm(world)
        outcome.problems += broken(world)
        outcome.happened = _happened(world, scenario)
        outcome.virtual_seconds = anyio.current_time()
        air.cancel_scope.cancel()


async def _settle(world: World) -> list[str]:
    """Waits until everything is as it must be, and stays so for a moment."""
    with anyio.move_on_after(SETTLE_SECONDS):
        still = 0
        while still < 3:
            await anyio.sleep(2.0)
            still = 0 if unsettled(world) else still + 1
    return unsettled(world)


async def _calm(world: World) -> list[str]:
    """Restarts every role, and looks whether anything noticed that must not."""
    before = at_rest(world)
    world.trace.note("═══ every role is restarted")
    for process in world.processes:
        if isinstance(process, Node) and not process.is_member:
            continue
        process.crash("killed at rest", down_seconds=world.chance.choice((0.1, 3.0)))
        await anyio.sleep(world.chance.choice((0.0, 0.5, 4.0)))
    await anyio.sleep(CALM_SECONDS)
    problems = await _settle(world)
    return problems or disturbed(before, at_rest(world))


def _happened(world: World, scenario: Scenario) -> Counter[str]:
    happened = Counter({f"action {name}": count for name, count in scenario.taken.items()})
    for process in world.processes:
        happened[f"lives of a {type(process).__name__.lower()}"] += process.lives
    for site in world.sites.values():
        happened.update(f"happening {entry.happening}" for entry in site.disk.tables.history)
        happened.update(f"end {item.state}" for item in site.disk.tables.instances.values())
    return happened


def never_happened(happened: Counter[str]) -> list[str]:
    """What many seeds together must have seen at least once, and have not: then they prove less than they seem to."""
    return sorted(EXPECTED - happened.keys())


def report(outcome: Outcome, lines: int, sabotage: Sabotage | None = None) -> list[str]:
    """The verdict on a seed, the end of its story, and how to see it again."""
    if not outcome.problems:
        took = f"{outcome.virtual_seconds:.0f} virtual seconds in {outcome.real_seconds:.1f} real ones"
        return [f"✓ seed {outcome.seed}: {took}"]
    again = f"make simulate SEED={outcome.seed}" + (f" SABOTAGE={sabotage}" if sabotage else "")
    return [
        f"✗ seed {outcome.seed} broke {len(outcome.problems)} promises:",
        *(f"    {problem}" for problem in outcome.problems[:10]),
        f"  the last {lines} lines of its story:",
        *(f"    {line}" for line in outcome.trace.last(lines)),
        f"  see it again:  {again}",
    ]
