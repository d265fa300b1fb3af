"""Files that people move from the folder of one site to that of another, as `git mv` and an editor do."""

import random

from homeport.ports import Change
from tests.simulation.scenario import App, Scenario, Story
from tests.simulation.world import is_marked


def chance_of(state: object) -> random.Random:
    """Its own, so that seeds which do not tell of it tell what they told before."""
    return random.Random(f"moves/{state!r}")


def move(scenario: Scenario) -> None:
    """One commit: the file is gone from one folder and is in another, where it names the other site. In a folder that
    it was in before, it is a newer release, or what it was, as after a revert."""
    movable = [app for app in scenario.apps if _can_move(scenario, app)]
    others = sorted(scenario.world.sites)
    if not movable or len(others) < 2:
        return
    app = scenario.chance.choice(movable)
    before, start = app.path, app.site
    app.left.append(start)
    app.site = scenario.chance.choice([site for site in others if site != start])
    app.nodes, app.went_back = (), False
    is_back = app.site in app.left
    if (is_back and len(scenario.world.remote.order) % 2) or (not is_back and scenario.chance.random() < 0.3):
        scenario.renew(app)
    scenario.world.moved.setdefault(app.id, set()).add(start)
    scenario.world.push([Change(before, None), app.change()], f"move {app.id[:4]} from {start} to {app.site}")


def copy(scenario: Scenario) -> None:
    """A file that is in two folders is the first site's at central, until one of the two goes."""
    world, chance = scenario.world, scenario.chance
    movable = [app for app in scenario.apps if _can_move(scenario, app) and not _was_sent_back(scenario, app)]
    others = sorted(world.sites)
    if not movable or len(others) < 2:
        return
    app = chance.choice(movable)
    site = chance.choice([each for each in others if each != app.site and each not in app.left] or [app.site])
    if site == app.site:
        return
    twin = App(app.id, site, app.parts, mode=app.mode, count=app.count, secret=app.secret, policy=app.policy)
    scenario.apps.append(twin)
    world.copied.add(app.id)
    world.moved.setdefault(app.id, set()).update((app.site, site))
    world.push([twin.change()], f"copy {app.id[:4]} from {app.site} to {site}")


def heal(scenario: Scenario) -> None:
    """Whoever copied a file takes one of the two back."""
    for deployment_id in sorted(scenario.world.copied):
        there = [app for app in scenario.apps if app.id == deployment_id and app.is_there]
        for app in there[1:] if scenario.chance.random() < 0.5 else there[:-1]:
            app.is_there = False


def _can_move(scenario: Scenario, app: App) -> bool:
    """What is lost, spoilt or copied is another story."""
    world, tree = scenario.world, scenario.world.remote.tree
    is_plain = app.is_there and not app.is_spoilt and app.id not in world.copied and app.path in tree
    return is_plain and all(is_marked(site, tree) for site in world.sites)


def _was_sent_back(scenario: Scenario, app: App) -> bool:
    """What a site asks of a copy is refused while it is another's."""
    sent_back = {each.deployment_id for each in scenario.world.backs} | {each[0] for each in scenario.world.pinned}
    return app.went_back or app.id in sent_back


STORY = Story(sites=(2, 2, 3), nodes=(1, 2), heal=heal, actions=((move, 24), (copy, 6)))
