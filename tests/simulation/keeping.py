"""What operators say of a site's machines: empty this node, leave that as it is for a while."""

from datetime import timedelta

import anyio

from homeport.core.model.deployment import Hold
from homeport.errors import HomeportError, NotFound, PermanentError
from homeport.fleet.central.sites.commands import SiteKeeper
from homeport.fleet.site.maintenance import OwnKeeper
from homeport.vocabulary import NodeId
from tests.simulation.people import ANN
from tests.simulation.roles import Site
from tests.simulation.scenario import Scenario, Story
from tests.simulation.trace import who

LOOK_SECONDS = 5.0


def drain(scenario: Scenario) -> None:
    _drain(scenario, True)


def undrain(scenario: Scenario) -> None:
    _drain(scenario, False)


def hold(scenario: Scenario) -> None:
    """The whole site or one deployment, at the site or through central."""
    site, chance = _any_site(scenario), scenario.chance
    here = [app.id for app in scenario.apps if app.site == site.site]
    deployment_id = chance.choice(here) if here and chance.random() < 0.4 else None
    seconds = chance.choice((2.0, 10.0, 40.0, 3600.0))
    what = f"hold {deployment_id[:4] if deployment_id else site.name} for {seconds} s"
    if chance.random() < 0.6:
        now = site.clock.now()
        held = Hold(site.site, deployment_id, "not now", ANN.name, now, now + timedelta(seconds=seconds))
        scenario.people.at_site(site, what, lambda core: OwnKeeper(core.conductor.alter).hold(held))
    else:
        now = scenario.world.central.clock.now()
        asked = Hold(site.site, deployment_id, "not now", ANN.name, now, now + timedelta(seconds=seconds))
        scenario.people.at_central(what, lambda core: SiteKeeper(core.store, core.questions, core.clock).hold(asked))


def release(scenario: Scenario) -> None:
    site = _any_site(scenario)
    for held in site.disk.tables.holds.get(site.site, ())[:1]:
        _release(scenario, site, held)


def heal(scenario: Scenario) -> None:
    """Holds end: whoever set them takes them back."""

    async def insist(site: Site) -> None:
        who.set("world")
        while True:
            for held in site.disk.tables.holds.get(site.site, ()):
                _release(scenario, site, held)
            await anyio.sleep(LOOK_SECONDS)

    for site in scenario.world.sites.values():
        scenario.world.air.start_soon(insist, site)


def _release(scenario: Scenario, site: Site, held: Hold) -> None:
    what = f"release {held.deployment_id[:4] if held.deployment_id else site.name}"
    scenario.people.at_site(
        site,
        what,
        lambda core: OwnKeeper(core.conductor.alter).release(site.site, held.deployment_id, by=ANN.name),
    )


def _drain(scenario: Scenario, is_drained: bool) -> None:
    world, chance = scenario.world, scenario.chance
    known = [(site, node) for site in world.sites.values() for _, node in sorted(site.disk.tables.nodes.items())]
    fitting = [(site, node) for site, node in known if (node.drain is None) == is_drained] or known
    if not fitting:
        return
    site, node = chance.choice(fitting)
    word, what = _Word(scenario, node.id, is_drained), f"{'drain' if is_drained else 'undrain'} {node.id}"
    world.ever_drained.add(node.id)
    if chance.random() < 0.6:
        scenario.people.at_site(
            site,
            what,
            lambda core: _say(OwnKeeper(core.conductor.alter), word),
            word.done,
            word.refused,
        )
    else:
        scenario.people.at_central(
            what,
            lambda core: _say(SiteKeeper(core.store, core.questions, core.clock), word),
            word.done,
            word.refused,
        )


class _Word:
    """One word about a node. Only the answer to one that nothing else crossed is a promise."""

    def __init__(self, scenario: Scenario, node_id: NodeId, is_drained: bool) -> None:
        self.world, self.node_id, self.is_drained = scenario.world, node_id, is_drained
        self.world.drains[node_id] = None
        self.world.doubts[node_id] += 1

    def done(self, _answer: object) -> None:
        if self.world.doubts[self.node_id] == 1:
            self.world.doubts[self.node_id] = 0
            self.world.drains[self.node_id] = self.is_drained

    def refused(self, error: HomeportError) -> None:
        """A site that has not confirmed it may still do it."""
        if isinstance(error, PermanentError) and self.world.doubts[self.node_id] == 1:
            self.world.doubts[self.node_id] = 0


async def _say(keeper: OwnKeeper | SiteKeeper, word: _Word) -> None:
    site = word.world.nodes[word.node_id].site
    tables = (site if isinstance(keeper, OwnKeeper) else word.world.central).disk.tables
    node = tables.nodes.get((site.site, word.node_id))
    if node is None:
        raise NotFound(f"There is no node {word.node_id}.")
    await (keeper.drain(node, "to be cleaned") if word.is_drained else keeper.undrain(node))


def _any_site(scenario: Scenario) -> Site:
    return scenario.chance.choice(list(scenario.world.sites.values()))


STORY = Story(
    sites=(1, 1, 2),
    nodes=(2, 3, 3),
    modes=("each", "one", "one", "count"),
    heal=heal,
    actions=((drain, 14), (undrain, 10), (hold, 10), (release, 4)),
)
