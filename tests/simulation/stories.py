"""Which stories there are. A seed chooses what its own is about: not each needs everything."""

import random
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.simulation import (
    central_restoring,
    going_back,
    jobbing,
    keeping,
    moving,
    policies,
    restoring,
    rolling,
    secret_keeping,
    stalling,
    wearing,
)
from tests.simulation.scenario import Scenario, Story
from tests.simulation.world import Sabotage


class About(StrEnum):
    ROLLOUTS = "rollouts"
    UPKEEP = "upkeep"
    GOING_BACK = "going-back"
    SECRETS = "secrets"
    RESTORES = "restores"
    WEAR = "wear"
    JOBS = "jobs"
    MOVES = "moves"
    CENTRAL_RESTORES = "central-restores"
    POLICIES = "policies"
    STALLS = "stalls"


STORIES = {
    About.ROLLOUTS: (rolling.STORY, 0.25),
    About.UPKEEP: (keeping.STORY, 0.25),
    About.GOING_BACK: (going_back.STORY, 0.2),
    About.SECRETS: (secret_keeping.STORY, 0.2),
    About.RESTORES: (restoring.STORY, 0.2),
    About.WEAR: (wearing.STORY, 0.2),
    About.JOBS: (jobbing.STORY, 0.2),
    About.MOVES: (moving.STORY, 0.1),
    About.CENTRAL_RESTORES: (central_restoring.STORY, 0.15),
    About.POLICIES: (policies.STORY, 0.15),
    About.STALLS: (stalling.STORY, 0.15),
}
"""Each with the share of seeds that tell of it."""
NEEDED = {
    Sabotage.HASTY_ROLLOUT: About.ROLLOUTS,
    Sabotage.CLOSED_GROUP: About.ROLLOUTS,
    Sabotage.UNWRITTEN_PINS: About.GOING_BACK,
    Sabotage.STALE_SECRETS: About.SECRETS,
    Sabotage.TWINS: About.UPKEEP,
    Sabotage.DEAF_TO_DRAINS: About.UPKEEP,
    Sabotage.DEAF_TO_HOLDS: About.UPKEEP,
    Sabotage.BLIND_TO_HEALTH: About.WEAR,
    Sabotage.SILENT_REPAIRS: About.WEAR,
    Sabotage.UNSENT_JOBS: About.JOBS,
    Sabotage.UNNOTICED_MOVES: About.MOVES,
    Sabotage.UNASKED_RESTATEMENTS: About.MOVES,
    Sabotage.UNNOTICED_LOSS: About.CENTRAL_RESTORES,
    Sabotage.IGNORED_POLICIES: About.POLICIES,
    Sabotage.UNNOTICED_COPIES: About.RESTORES,
    Sabotage.UNWRITTEN_NEWS: About.STALLS,
}
"""What a story must be about to show a bug."""
NEWER = frozenset({About.WEAR, About.JOBS, About.MOVES, About.CENTRAL_RESTORES, About.POLICIES, About.STALLS})
"""Those that draw from a chance of their own."""
ACTIONS = (*Scenario.ACTIONS, *(action for story, _ in STORIES.values() for action in story.actions))


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to see, besides what the seed chooses."""

    sabotage: Sabotage | None = None
    about: About | None = None

    @property
    def options(self) -> str:
        """How to ask for the same again."""
        told = {"ABOUT": self.about, "SABOTAGE": self.sabotage}
        return "".join(f" {name}={value}" for name, value in told.items() if value is not None)


def choose(chance: random.Random, wish: Wish) -> tuple[frozenset[About], Story]:
    asked = {wish.about, NEEDED.get(wish.sabotage) if wish.sabotage else None}
    # A chance of its own for what came later, so that seeds which found something tell the same story as before.
    chances = {
        About.RESTORES: random.Random(repr(chance.getstate())),
        About.WEAR: wearing.chance_of(chance.getstate()),
        About.JOBS: jobbing.chance_of(chance.getstate()),
        About.MOVES: moving.chance_of(chance.getstate()),
        About.CENTRAL_RESTORES: central_restoring.chance_of(chance.getstate()),
        About.POLICIES: policies.chance_of(chance.getstate()),
        About.STALLS: stalling.chance_of(chance.getstate()),
    }
    drawn = {about for about, (_, share) in STORIES.items() if chances.get(about, chance).random() < share}
    if wish.sabotage is not None:
        drawn -= NEWER  # The recorded seeds of the others are older than they are.
    chosen = [about for about in STORIES if about in drawn | asked]
    return frozenset(chosen), _together([STORIES[about][0] for about in chosen])


def _together(stories: list[Story]) -> Story:
    """The first says how large the fleet is; what may happen adds up."""
    if not stories:
        return Story()

    def prepare(scenario: Scenario) -> None:
        for story in stories:
            story.prepare(scenario)

    def heal(scenario: Scenario) -> None:
        for story in stories:
            story.heal(scenario)

    def late(scenario: Scenario) -> None:
        for story in stories:
            if story.late is not None:
                story.late(scenario)

    is_late = any(story.late is not None for story in stories)
    first, actions = stories[0], [action for story in stories for action in story.actions]
    modes = max((story.modes for story in stories), key=len)
    return replace(
        first,
        prepare=prepare,
        heal=heal,
        actions=actions,
        modes=modes,
        late=late if is_late else None,
        uses_secrets=any(story.uses_secrets for story in stories),
        policies=next((story.policies for story in stories if story.policies), ()),
    )
