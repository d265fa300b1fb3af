"""What a file says of failures: how often a release is tried, and whether the one before it is brought back; and
people who ask that it is tried once more, or restarted."""

import random

from homeport.catalog.marks import Mark
from homeport.fleet.central.deploy import ask_again
from tests.simulation.people import ANN
from tests.simulation.scenario import Scenario, Story
from tests.simulation.world import is_file_of_deployment


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"policies/{state!r}")


def ask_for_retry(scenario: Scenario) -> None:
    _ask(scenario, "retry")


def ask_for_restart(scenario: Scenario) -> None:
    _ask(scenario, "restart")


def ask_late(scenario: Scenario) -> None:
    """Something that failed for good, if there is any."""
    _ask(scenario, scenario.chance.choice(("retry", "retry", "restart")))


def _ask(scenario: Scenario, mark: Mark) -> None:
    world = scenario.world
    rows = world.central.disk.tables.deployments
    there = {
        path.rpartition("/")[2].removesuffix(".yaml") for path in world.remote.tree if is_file_of_deployment(path)
    }
    known = [key for key in sorted(rows) if key in there]
    failed = {item.deployment_id for item in world.central.disk.tables.instances.values() if item.failure is not None}
    fitting = [key for key in known if key in failed] if mark == "retry" else known
    if not fitting:
        return
    deployment_id = scenario.chance.choice(fitting)
    scenario.people.at_central(
        f"ask-for-{mark} of {deployment_id[:4]}",
        lambda core: ask_again(deployment_id, mark, "it was asked for", ANN, core.git_writer),
    )


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    policies=(
        "",
        "rollback: false",
        "rollback: false, retries: 1",
        "retries: 0",
        "retries: 0, rollback: false",
        "retries: 5, backoff: 1s",
        "onUnhealthy: report",
    ),
    late=ask_late,
    actions=((ask_for_retry, 12), (ask_for_restart, 8), (Scenario.alter, 16)),
)
