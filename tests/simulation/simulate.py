"""Runs one seed from its beginning to its verdict."""

import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from homeport.core.jobs.job import ENDED
from homeport.vocabulary import RolloutState, State, Trigger
from tests.simulation.invariants import at_rest, broken, disturbed, unsettled
from tests.simulation.jobbing import broken_jobs, outcomes, unsettled_jobs
from tests.simulation.loop import run
from tests.simulation.people import People
from tests.simulation.roles import Node
from tests.simulation.rollout_model import RolloutModel
from tests.simulation.sabotage import sabotaged
from tests.simulation.scenario import Scenario
from tests.simulation.stories import ACTIONS, About, Wish, choose
from tests.simulation.trace import Trace, who
from tests.simulation.world import World

SETTLE_SECONDS = 900.0
CALM_SECONDS = 40.0
LOOK_SECONDS = 2.0
QUIET_SECONDS = 14.0
"""For so long everything must be as it should before it counts as settled: longer than two rounds of any loop."""
LATE_SECONDS = 15.0
"""Within so long somebody has taken notice of a late wish."""
AS_IT_COMES = Wish()
SHARED_MEMORY = Path("/dev/shm")
"""A journal's fsync costs nothing there."""
LASTING = frozenset({RolloutState.RUNNING, RolloutState.PAUSED})
"""States in which few rollouts are found in the end."""
EXPECTED = frozenset(
    {
        *(f"action {action.__name__}" for action, _ in ACTIONS),
        *(f"story of {about}" for about in About),
        *(f"rollout {state}" for state in RolloutState if state not in LASTING),
        # Only a site that was cut off for very long says anew how it stands.
        *(f"happening {trigger}" for trigger in Trigger if trigger is not Trigger.RESTATED),
        *(f"job {state}" for state in ENDED),
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


def simulate(seed: int, wish: Wish = AS_IT_COMES) -> Outcome:
    outcome, began = Outcome(seed), time.perf_counter()
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    temporary = tempfile.TemporaryDirectory(prefix="homeport-simulation-", dir=place)
    with outcome.trace.listening(), sabotaged(wish.sabotage), temporary as folder:
        run(lambda: _unfold(outcome, Path(folder), wish))
    outcome.real_seconds = time.perf_counter() - began
    return outcome


async def _unfold(outcome: Outcome, folder: Path, wish: Wish) -> None:
    who.set("world")
    async with anyio.create_task_group() as air:
        seed = str(outcome.seed)
        world = World(seed, random.Random(seed), outcome.trace, air, folder, wish.sabotage)
        chance = random.Random(f"{seed}/scenario")
        abouts, story = choose(chance, wish)
        scenario = Scenario(world, chance, story, People(world))
        models = Models(world)
        await scenario.unfold()
        scenario.heal()
        outcome.problems = await _settle(models)
        if not outcome.problems and story.late is not None:
            story.late(scenario)
            await anyio.sleep(LATE_SECONDS)
            outcome.problems = await _settle(models)
        if not outcome.problems:
            outcome.problems = await _calm(models)
        outcome.problems += [*broken(world), *broken_jobs(world)]
        outcome.happened = _happened(world, scenario)
        outcome.happened.update(f"story of {about}" for about in abouts)
        outcome.virtual_seconds = anyio.current_time()
        air.cancel_scope.cancel()


class Models:
    """All that is promised of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rollouts = RolloutModel(world)
        world.watchers.append(self.rollouts.committed)

    def unsettled(self) -> list[str]:
        return unsettled(self.world) or [*self.rollouts.unsettled(), *unsettled_jobs(self.world)]


async def _settle(models: Models) -> list[str]:
    """Waits until everything is as it must be, and stays so for a moment."""
    with anyio.move_on_after(SETTLE_SECONDS):
        quiet = 0.0
        while quiet < QUIET_SECONDS:
            await anyio.sleep(LOOK_SECONDS)
            quiet = 0.0 if models.unsettled() else quiet + LOOK_SECONDS
    return models.unsettled() or await models.rollouts.miscounted()


async def _calm(models: Models) -> list[str]:
    """Restarts every role, and looks whether anything noticed that must not."""
    world = models.world
    before = at_rest(world)
    world.trace.note("═══ every role is restarted")
    for process in world.processes:
        if isinstance(process, Node) and not process.is_member:
            continue
        process.crash("killed at rest", down_seconds=world.chance.choice((0.1, 3.0)))
        await anyio.sleep(world.chance.choice((0.0, 0.5, 4.0)))
    await anyio.sleep(CALM_SECONDS)
    problems = await _settle(models)
    return problems or disturbed(before, at_rest(world))


def _happened(world: World, scenario: Scenario) -> Counter[str]:
    happened = Counter({f"action {name}": count for name, count in scenario.taken.items()})
    for process in world.processes:
        happened[f"lives of a {type(process).__name__.lower()}"] += process.lives
    for site in world.sites.values():
        happened.update(f"happening {entry.trigger}" for entry in site.disk.tables.history)
        happened.update(f"end {item.state}" for item in site.disk.tables.instances.values())
    happened.update(f"rollout {row.state}" for row in world.central.disk.tables.rollouts.values())
    happened.update(outcomes(world.central))
    happened.update({f"done: {what}": count for what, count in scenario.people.answered.items()})
    return happened


def never_happened(happened: Counter[str]) -> list[str]:
    """What many seeds together must have seen at least once, and have not: then they prove less than they seem to."""
    return sorted(EXPECTED - happened.keys())


def report(outcome: Outcome, lines: int, wish: Wish = AS_IT_COMES) -> list[str]:
    """The verdict on a seed, the end of its story, and how to see it again."""
    if not outcome.problems:
        took = f"{outcome.virtual_seconds:.0f} virtual seconds in {outcome.real_seconds:.1f} real ones"
        return [f"✓ seed {outcome.seed}: {took}"]
    again = f"make simulate SEED={outcome.seed}{wish.options}"
    return [
        f"✗ seed {outcome.seed} broke {len(outcome.problems)} promises:",
        *(f"    {problem}" for problem in outcome.problems[:10]),
        f"  the last {lines} lines of its story:",
        *(f"    {line}" for line in outcome.trace.last(lines)),
        f"  see it again:  {again}",
    ]
