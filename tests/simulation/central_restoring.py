"""Central's database, lost or put back from an older copy: its sites tell it everything again, and what runs there is
not touched."""

import random

from tests.simulation.scenario import Scenario, Story
from tests.simulation.store import Tables


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"central-restores/{state!r}")


def copy_central(scenario: Scenario) -> None:
    """Somebody makes a backup. Tables never change once committed, so it costs nothing."""
    scenario.copy_of_central = scenario.world.central.disk.tables
    scenario.world.trace.note("the database of central is copied")


def restore_central(scenario: Scenario) -> None:
    if scenario.copy_of_central is not None:
        _replace(scenario, scenario.copy_of_central, "the database of central is an older copy")


def lose_central(scenario: Scenario) -> None:
    """With the folder that it was in, where the clone was too."""
    scenario.copy_of_central = None
    _replace(scenario, Tables(), "the database of central is lost")
    scenario.world.central.clone.clear()


def _replace(scenario: Scenario, tables: Tables, what: str) -> None:
    """What central was told of the time that it has forgotten is no promise any more. Rollouts and jobs are other
    stories: what they promise is kept at central alone."""
    world = scenario.world
    if world.has_jobs or world.central.disk.tables.apps:
        return
    world.trace.note(what)
    world.central.crash("for its database", down_seconds=scenario.down())
    world.central.disk.tables = tables
    world.central_forgot = True
    world.secrets.clear()
    world.backs[:] = [each for each in world.backs if each.by != world.central.name]


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    actions=((copy_central, 12), (restore_central, 14), (lose_central, 5), (Scenario.alter, 8)),
)
