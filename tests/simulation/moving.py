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
    was there before, it is a newer release: the same bytes again would be an old revision."""
    movable = [app for app in scenario.apps if _can_move(scenario, app)]
    others = sorted(scenario.world.sites)
    if not movable or len(others) < 2:
        return
    app = scenario.chance.choice(movable)
    before, start = app.path, app.site
    app.left.append(start)
    app.site = scenario.chance.choice([site for site in others if site != start])
    app.nodes = ()
    if app.site in app.left or scenario.chance.random() < 0.3:
        scenario.renew(app)
    scenario.world.moved.setdefault(app.id, set()).add(start)
    scenario.world.push([Change(before, None), app.change()], f"move {app.id[:4]} from {start} to {app.site}")


def _can_move(scenario: Scenario, app: App) -> bool:
    """What is lost, spoilt or was gone back from is another story."""
    world, tree = scenario.world, scenario.world.remote.tree
    sent_back = {each.deployment_id for each in world.backs} | {each[0] for each in world.pinned}
    is_pinned = app.went_back or app.id in sent_back
    is_plain = app.is_there and not app.is_spoilt and tree.get(app.path) == app.change().content
    return is_plain and not is_pinned and all(is_marked(site, tree) for site in world.sites)


STORY = Story(sites=(2, 2, 3), nodes=(1, 2), actions=((move, 24),))
