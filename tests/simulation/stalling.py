"""What stands still for a while and goes on: processes that are stopped, as by SIGSTOP, and disks that are full, so
that nothing can be written and every role lives on. And nodes that lose their folder, with all that they knew."""

import random
import shutil

from homeport.vocabulary import Code
from tests.simulation.roles import Node
from tests.simulation.scenario import Scenario, Story


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"stalls/{state!r}")


def fill_disk(scenario: Scenario) -> None:
    """While something happens, or about to."""
    scenario.alter()
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


def freeze(scenario: Scenario) -> None:
    process = scenario.any_process()
    scenario.world.trace.note(f"{process.name} stands still")
    process.freeze()
    scenario.undo(process.thaw, f"{process.name} goes on")


def lose_journal(scenario: Scenario) -> None:
    """It comes back under the same name."""
    node = scenario.chance.choice(list(scenario.world.nodes.values()))
    if node.data.is_dir():
        scenario.world.trace.note(f"the folder of {node.name} is lost")
        node.crash("for its folder", down_seconds=scenario.down())
        scenario.world.lost_folders.add(node.node_id)
        shutil.rmtree(node.data)


def heal(scenario: Scenario) -> None:
    for process in scenario.world.processes:
        process.thaw()
        process.is_full = False
        if isinstance(process, Node):
            process.machine.disk_full = False


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    heal=heal,
    actions=((fill_disk, 20), (freeze, 16), (lose_journal, 5), (Scenario.alter, 12)),
)
