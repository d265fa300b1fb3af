"""Going back at a person's word: at central, or at a site whose Git may be gone."""

from collections import Counter
from dataclasses import dataclass

from homeport.central.parts import CentralCore
from homeport.fleet.central.rollback import choose, roll_back
from homeport.fleet.site.maintenance import older_revision, roll_back_to
from homeport.site.parts import SiteCore
from homeport.vocabulary import DeploymentId, Digest, Trigger
from tests.simulation.people import ANN
from tests.simulation.roles import Site
from tests.simulation.scenario import Scenario, Story
from tests.simulation.world import GoingBack

SETTLED_SECONDS = 6.0
REASON = "it was better before"


@dataclass(frozen=True, slots=True)
class Answered:
    """Somebody was told that a deployment goes back, and Git does not say so yet."""

    deployment_id: DeploymentId
    over: Digest
    to: Digest
    by: str


def go_back_at_central(scenario: Scenario) -> None:
    picked = _pick(scenario)
    if picked is None:
        return
    deployment_id, world = picked[1], scenario.world

    async def act(core: CentralCore) -> Answered | None:
        row, target = await choose(deployment_id, None, core.git_writer)
        world.pinned.add((row.id, target.revision))
        went = await roll_back(
            row.id, target.revision, reason=REASON, caller=ANN, git_writer=core.git_writer, clock=core.clock
        )
        return Answered(row.id, row.revision, target.revision, world.central.name) if went.commit is None else None

    scenario.people.at_central(
        f"go-back-at-central with {deployment_id[:4]}", act, lambda answer: _promise(scenario, answer)
    )


def go_back_at_site(scenario: Scenario) -> None:
    picked = _pick(scenario)
    if picked is None:
        return
    site, deployment_id = picked
    world = scenario.world
    if scenario.chance.random() < 0.5:
        cable = world.cable("git", site.name)
        world.trace.note(f"cut git–{site.name}")
        cable.cut()
        scenario.undo(cable.heal, f"heal git–{site.name}")

    async def act(core: SiteCore) -> Answered:
        target = await older_revision(core.store, core.conductor.memory, deployment_id, None)
        world.pinned.add((deployment_id, target.revision))
        world.by_hand.add((deployment_id, target.revision))
        file = core.conductor.memory.files[deployment_id]
        await core.conductor.alter(roll_back_to(target, reason=REASON, author=ANN.name))
        return Answered(deployment_id, file.revision, target.revision, site.name)

    scenario.people.at_site(
        site, f"go-back-at-site with {deployment_id[:4]}", act, lambda answer: _promise(scenario, answer)
    )


def _promise(scenario: Scenario, answer: Answered | None) -> None:
    if answer is None:
        return
    # Who goes back twice has meant the second; to what Git says already, nothing has to reach Git.
    world = scenario.world
    world.backs[:] = [each for each in world.backs if each.deployment_id != answer.deployment_id]
    if answer.to != answer.over:
        world.backs.append(GoingBack(answer.deployment_id, answer.over, len(world.remote.order), answer.by))


def _pick(scenario: Scenario) -> tuple[Site, DeploymentId] | None:
    """A deployment that has something to go back to; where there is none yet, something new comes instead."""
    fitting = []
    for site in scenario.world.sites.values():
        history = site.disk.tables.history
        healthy = {(each.deployment_id, each.revision) for each in history if each.trigger is Trigger.HEALTHY}
        good = Counter(key for key, _ in healthy)
        fitting += [
            (site, key)
            for key in sorted(site.disk.tables.desired)
            if good[key] > 1 and key not in scenario.world.copied
        ]
    if not fitting:
        scenario.alter()
        return None
    site, deployment_id = scenario.chance.choice(fitting)
    for app in scenario.apps:
        app.went_back |= app.id == deployment_id
    return site, deployment_id


def prepare(scenario: Scenario) -> None:
    """Everything changes once before long, so that there is something to go back to."""

    async def alter_all() -> None:
        for app in list(scenario.apps):
            scenario.change(app)

    scenario.later(SETTLED_SECONDS, alter_all)


def go_back_late(scenario: Scenario) -> None:
    scenario.chance.choice((go_back_at_central, go_back_at_site))(scenario)


STORY = Story(
    sites=(1, 2, 2),
    nodes=(1, 2, 2),
    apps=(1, 2),
    prepare=prepare,
    late=go_back_late,
    actions=((go_back_at_central, 25), (go_back_at_site, 25), (Scenario.alter, 10)),
)
