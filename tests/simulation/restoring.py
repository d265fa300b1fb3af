"""Databases that are lost, or put back from an older copy, and roles that are asked to end instead of killed."""

from tests.simulation.roles import Site
from tests.simulation.scenario import Scenario, Story
from tests.simulation.store import Tables


def copy_site(scenario: Scenario) -> None:
    """Somebody makes a backup. Tables never change once committed, so it costs nothing."""
    site = _any_site(scenario)
    scenario.copies[site.site] = site.disk.tables
    scenario.world.trace.note(f"the database of {site.name} is copied")


def restore_site(scenario: Scenario) -> None:
    site = _any_site(scenario)
    copy = scenario.copies.get(site.site)
    # Who came or went since is another story: the copy would bring back a node that nobody expects.
    if copy is not None and copy.nodes.keys() == site.disk.tables.nodes.keys():
        _replace(scenario, site, copy, f"the database of {site.name} is an older copy")


def lose_site(scenario: Scenario) -> None:
    site = _any_site(scenario)
    if any(node.site is site and not node.is_member for node in scenario.world.nodes.values()):
        return
    scenario.copies.pop(site.site, None)
    _replace(scenario, site, Tables(), f"the database of {site.name} is lost")


def terminate(scenario: Scenario) -> None:
    """A role is asked to end, and may still do what it does at its end."""
    process = scenario.any_process()
    process.terminate("asked to end", down_seconds=scenario.down())


def _replace(scenario: Scenario, site: Site, tables: Tables, what: str) -> None:
    """What people were told of a time that the site has forgotten is no promise any more."""
    world = scenario.world
    world.trace.note(what)
    site.crash("for its database", down_seconds=scenario.down())
    world.forgotten.setdefault(site.site, []).append(site.disk.tables)
    site.disk.tables = tables
    world.restored.add(site.site)
    for node in world.nodes.values():
        if node.site is site:
            world.drains.pop(node.node_id, None)
            world.doubts[node.node_id] += 1
            world.ever_drained.add(node.node_id)
    here = {app.id for app in scenario.apps if app.site == site.site}
    world.backs[:] = [each for each in world.backs if each.deployment_id not in here]


def _any_site(scenario: Scenario) -> Site:
    return scenario.chance.choice(list(scenario.world.sites.values()))


STORY = Story(
    sites=(1, 1, 2),
    nodes=(1, 2, 2),
    actions=((copy_site, 12), (restore_site, 14), (lose_site, 4), (terminate, 8), (Scenario.alter, 8)),
)
