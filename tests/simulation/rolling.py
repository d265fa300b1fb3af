"""Rollouts: what people do with them while everything else happens."""

from dataclasses import replace

from homeport.catalog.rollout import intent_of
from homeport.core.model.rollout import EVERYBODY, Size
from homeport.core.values.selectors import parse_selector
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.deploy import delete, deploy
from homeport.fleet.central.labels import label_site
from homeport.fleet.central.resolve import DeployRequest, DeployTarget
from homeport.rollouts.start import RolloutRequest, start_rollout, steer
from homeport.vocabulary import RolloutCommand, RolloutState, SiteName
from tests.simulation.catalog import APP, BY_HAND, CATEGORY, ROLLED_OUT, catalog
from tests.simulation.people import ANN
from tests.simulation.scenario import Scenario, Story

RINGS = ("inner", "outer")
WAVES = ((EVERYBODY,), (Size(1), EVERYBODY), (Size(1), Size(50, True), EVERYBODY), (Size(2), EVERYBODY))


def prepare(scenario: Scenario) -> None:
    """Sites in two rings, and a catalog to choose from."""
    world, chance = scenario.world, scenario.chance
    disk = world.central.disk
    disk.tables = replace(disk.tables, apps=catalog(chance))
    for site in world.sites:
        world.labels[site] = _labels(scenario)


def begin_rollout(scenario: Scenario) -> None:
    chance = scenario.chance
    begun = len(scenario.world.central.disk.tables.rollouts)
    version = ROLLED_OUT[min(begun, len(ROLLED_OUT) - 1)]
    if chance.random() < 0.15:
        version = chance.choice(ROLLED_OUT)
    selector = chance.choice(("ring=inner", "ring=outer", "ring=inner", "ring=outer", "ring", ""))
    sites = sorted(scenario.world.sites)
    named = [] if selector and chance.random() < 0.8 else chance.sample(sites, chance.randint(1, len(sites)))
    request = RolloutRequest(
        DeployRequest(tuple(map(DeployTarget, named)), app=AppQuery(CATEGORY, APP, version)),
        selector=parse_selector(selector),
        waves=chance.choice(WAVES),
        bake_seconds=chance.choice((0.0, 0.0, 5.0, 20.0)),
        threshold_percent=chance.choice((100, 100, 60, 30)),
    )
    waves = ",".join(map(str, request.waves))
    what = f"begin a rollout of {version} to {selector or '-'} {','.join(named)} in {waves}"
    scenario.people.at_central(what, lambda core: start_rollout(request, ANN, core))


def steer_rollout(scenario: Scenario) -> None:
    chance, rollouts = scenario.chance, scenario.world.central.disk.tables.rollouts
    if not rollouts:
        return
    rollout_id = chance.choice(list(rollouts))
    word = chance.choice(
        (RolloutCommand.RUNNING, RolloutCommand.RUNNING, RolloutCommand.PAUSED, RolloutCommand.ABORTED)
    )
    what = f"{word} for rollout {rollout_id[:4]}"
    scenario.people.at_central(what, lambda core: steer(rollout_id, word, ANN, core))


def relabel(scenario: Scenario) -> None:
    """In Git, or through central."""
    world, chance = scenario.world, scenario.chance
    site = chance.choice(sorted(world.sites))
    labels = _labels(scenario)
    if chance.random() < 0.5:
        world.labels[site] = labels
        world.push([world.mark(site)], f"label {site}: {labels}")
        return
    changes = {"ring": labels.get("ring")}
    scenario.people.at_central(
        f"label {site}: {labels}",
        lambda core: label_site(site, changes, ANN, core.git_writer),
        lambda _: world.labels.update({site: labels}),
    )


def come_late(scenario: Scenario) -> None:
    """A site moves to another ring when all is done; if there is one, to a ring that has got something."""
    world, rows = scenario.world, scenario.world.central.disk.tables.rollouts.values()
    done = [intent_of(row.intent) for row in rows if row.state is RolloutState.DONE]
    moves = [(site, ring) for site in sorted(world.sites) for ring in RINGS]
    lacking = [
        (site, ring)
        for site, ring in moves
        if any(intent.targets(site, {"ring": ring}) and site not in intent.given for intent in done)
    ]
    site, ring = scenario.chance.choice(lacking or moves)
    world.labels[site] = {"ring": ring}
    world.push([world.mark(site)], f"late label {site}: {ring}")


def deploy_one(scenario: Scenario) -> None:
    """Somebody wants something else at one of the sites."""
    site = scenario.chance.choice(sorted(scenario.world.sites))
    version = scenario.chance.choice(BY_HAND)
    request = DeployRequest((DeployTarget(site),), app=AppQuery(CATEGORY, APP, version))
    scenario.people.at_central(f"deploy {version} at {site}", lambda core: deploy(request, ANN, core.git_writer))


def delete_one(scenario: Scenario) -> None:
    site: SiteName = scenario.chance.choice(sorted(scenario.world.sites))
    scenario.people.at_central(f"delete {APP} at {site}", lambda core: delete(f"{APP}@{site}", ANN, core.git_writer))


def _labels(scenario: Scenario) -> dict[str, str]:
    return {"ring": scenario.chance.choice(RINGS)} if scenario.chance.random() < 0.85 else {}


STORY = Story(
    sites=(3, 4, 4, 5),
    nodes=(1, 1, 1, 2),
    apps=(0, 0, 1),
    prepare=prepare,
    late=come_late,
    actions=(
        (begin_rollout, 25),
        (steer_rollout, 18),
        (relabel, 8),
        (deploy_one, 4),
        (delete_one, 3),
    ),
)
