"""Disks that are full for a while: nothing can be written there, and every role lives on. And nodes that lose their
folder, with all that they knew of what they run."""

import random
import shutil

from homeport.vocabulary import Code
from tests.simulation.roles import Node
from tests.simulation.scenario import Scenario, Story


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"disks/{state!r}")


def fill_disk(scenario: Scenario) -> None:
    process = scenario.any_process()
    scenario.world.trace.note(f"the disk of {process.name} is full")
    process.is_full = True
    if isinstance(process, Node):
        process.machine.disk_full = True
        process.machine.misfortunes.add(Code.DISK_FULL)

    def free() -> None:
        process.is_full = False
        if isinstance(process, Node):
            process.machine.disk_full = False

    scenario.undo(free, f"the disk of {process.name} has space again")


def lose_journal(scenario: Scenario) -> None:
    """It comes back under the same name."""
    node = scenario.chance.choice(list(scenario.world.nodes.values()))
    if node.data.is_dir():
        scenario.world.trace.note(f"the folder of {node.name} is lost")
        node.crash("for its folder", down_seconds=scenario.down())
        shutil.rmtree(node.data)


def heal(scenario: Scenario) -> None:
    for process in scenario.world.processes:
        process.is_full = False
        if isinstance(process, Node):
            process.machine.disk_full = False


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    heal=heal,
    actions=((fill_disk, 26), (lose_journal, 5), (Scenario.alter, 12)),
)
