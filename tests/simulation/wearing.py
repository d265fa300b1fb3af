"""What wears out with time: health that changes after the step, images that are gone when they are needed again,
journals put back from an older copy, and roles that are asked to end in the middle of a write."""

import random
import shutil

from homeport.vocabulary import Code
from tests.simulation.life import Fuse, Side
from tests.simulation.machine import Machine, behaviour
from tests.simulation.scenario import Scenario, Story
from tests.simulation.world import Sabotage

COPY = ".copy"
SHOWN_BY_WHAT_STAYS = (Sabotage.BLIND_TO_HEALTH, Sabotage.SILENT_REPAIRS)


def prepare(scenario: Scenario) -> None:
    """Here components have a check that goes on after they were installed."""
    for node in scenario.world.nodes.values():
        node.machine.keeps_checking = True


def sicken(scenario: Scenario) -> None:
    """A component turns unhealthy, and stays so however often it is restarted, until somebody cures it."""
    machine = _any_machine(scenario)
    well = [key for key, held in sorted(machine.containers.items()) if behaviour(held.tag, machine.place)[0] == "ok"]
    if not well:
        return
    key = scenario.chance.choice(well)
    scenario.world.trace.note(f"{key[1]} of {key[0][:4]} turns unhealthy on {machine.name}")
    machine.ill.add(key)
    machine.ever_ill.add(key)
    _blame(machine, Code.HEALTH_CHECK_FAILED, Code.TIMEOUT)
    if _is_for_a_while(scenario):
        scenario.undo(lambda: machine.ill.discard(key), f"{key[1]} of {key[0][:4]} is cured on {machine.name}")


def wither(scenario: Scenario) -> None:
    """A container is gone with its image, which nobody can pull any more: a repair cannot succeed."""
    machine = _any_machine(scenario)
    if not machine.containers:
        return
    key = scenario.chance.choice(sorted(machine.containers))
    tag = machine.containers.pop(key).tag
    scenario.world.trace.note(f"{key[1]} of {key[0][:4]} is gone from {machine.name} with its image {tag}")
    machine.images = {image for image in machine.images if not image.endswith(f":{tag}")}
    machine.withered.add(tag)
    _blame(machine, Code.IMAGE_PULL_FAILED, Code.HEALTH_CHECK_FAILED, Code.TIMEOUT)
    if _is_for_a_while(scenario):
        scenario.undo(lambda: machine.withered.discard(tag), f"{tag} can be pulled again on {machine.name}")


def copy_journal(scenario: Scenario) -> None:
    node = scenario.chance.choice(list(scenario.world.nodes.values()))
    if node.data.is_dir():
        scenario.world.trace.note(f"the folder of {node.name} is copied")
        shutil.copytree(node.data, node.data.with_suffix(COPY), dirs_exist_ok=True)


def restore_journal(scenario: Scenario) -> None:
    node = scenario.chance.choice(list(scenario.world.nodes.values()))
    copy = node.data.with_suffix(COPY)
    if copy.is_dir():
        scenario.world.trace.note(f"the folder of {node.name} is an older copy")
        node.crash("for its folder", down_seconds=scenario.down())
        shutil.rmtree(node.data)
        shutil.copytree(copy, node.data)


def terminate_at_a_write(scenario: Scenario) -> None:
    process, chance = scenario.any_process(), scenario.chance
    if process.life is not None:
        fuse = Fuse(chance.randint(1, 12), chance.choice((Side.BEFORE, Side.AFTER)), is_gentle=True)
        scenario.world.trace.note(f"{process.name} will be asked to end {fuse.side} write {fuse.writes}")
        process.life.fuse, process.down_seconds = fuse, scenario.down()


def heal(scenario: Scenario) -> None:
    """Some of it stays: then somebody has to be told."""
    if scenario.world.sabotage in SHOWN_BY_WHAT_STAYS:
        return
    for node in scenario.world.nodes.values():
        if scenario.chance.random() < 0.5:
            node.machine.ill.clear()
            node.machine.withered.clear()


def _any_machine(scenario: Scenario) -> Machine:
    return scenario.chance.choice(list(scenario.world.nodes.values())).machine


def _is_for_a_while(scenario: Scenario) -> bool:
    return scenario.chance.random() < 0.5 and scenario.world.sabotage not in SHOWN_BY_WHAT_STAYS


def _blame(machine: Machine, *codes: Code) -> None:
    machine.misfortunes.update(codes)


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"wear/{state!r}")


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    prepare=prepare,
    heal=heal,
    late=sicken,
    actions=(
        (sicken, 14),
        (wither, 8),
        (copy_journal, 6),
        (restore_journal, 8),
        (terminate_at_a_write, 10),
        (Scenario.alter, 6),
    ),
)
