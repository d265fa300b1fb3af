"""A rollout: one app version on its way to many sites, in waves. What is wanted of it is the file
`rollouts/<id>.yaml`; `Intent` is that file, read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from homeport.core.model.app import Value
from homeport.core.model.deployment import ON_EACH_NODE, USUAL_POLICY, Placement, Policy
from homeport.core.selectors import ANYTHING, Selector
from homeport.vocabulary import Commit, RolloutId, RolloutState, RolloutWord, SiteName, Standing


@dataclass(frozen=True, slots=True)
class Size:
    """How many sites have it in all once a wave has begun: a count, or a share of the group."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Rounded up: a share of a small group is still somebody."""
        return min(total, -(-total * self.number // 100) if self.is_percent else self.number)

    @property
    def is_everybody(self) -> bool:
        return self.is_percent and self.number == 100

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)


EVERYBODY = Size(100, is_percent=True)


@dataclass(frozen=True, slots=True)
class Wave:
    size: Size
    sites: tuple[SiteName, ...] | None = None
    """Who is in it, written down when it begins; None before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    id: RolloutId
    name: str
    """Of the deployments it makes."""
    category: str
    app_name: str
    version: str
    profile: str
    created_at: datetime
    author: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    placement: Placement = ON_EACH_NODE
    policy: Policy = USUAL_POLICY
    remove_images: bool = False
    sites: tuple[SiteName, ...] = ()
    selector: Selector = ANYTHING
    waves: tuple[Wave, ...] = (Wave(EVERYBODY),)
    bake_seconds: float = 0.0
    threshold_percent: int = 100
    word: RolloutWord = RolloutWord.RUNNING
    joined: tuple[SiteName, ...] = ()
    """Sites that came to the group after its last wave, and got what it has."""

    @property
    def given(self) -> frozenset[SiteName]:
        """Every site that it was given to, once and for all."""
        return frozenset(site for wave in self.waves for site in wave.sites or ()) | frozenset(self.joined)

    @property
    def waves_begun(self) -> int:
        return sum(wave.sites is not None for wave in self.waves)

    def targets(self, site: SiteName, labels: Mapping[str, str]) -> bool:
        return site in self.sites or (bool(self.selector) and self.selector.unmet(labels) is None)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout as central knows it: what is wanted of it, and how far it has come."""

    intent: Intent
    state: RolloutState
    first_commit: Commit
    """The commit in which it was first seen: what changed at a site after it overtakes it."""
    version: int
    updated_at: datetime
    reason: str = ""
    """Why it is in this state, or what it waits for, as a sentence."""
    watched_seconds: float | None = None
    """For how long the newest wave has had enough healthy sites; None while it has not."""
    refused: Mapping[SiteName, str] = field(default_factory=dict)
    """Sites that could not be given their file, and why."""
    problem: str | None = None
    """Why its file in Git is not what is applied."""


@dataclass(frozen=True, slots=True)
class Member:
    """One site of a rollout, as it stands."""

    site: SiteName
    standing: Standing
    wave: int | None = None
    """From 0; None for a site that waits, or that joined later."""
    is_reachable: bool = True
    why: str = ""
    is_held: bool = False
    """Whether somebody wants nothing changed there for now."""

    @property
    def can_answer(self) -> bool:
        """Whether it would take what it is given now."""
        return self.is_reachable and not self.is_held


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """How a rollout is stored: its intent and its progress as plain data."""

    id: RolloutId
    name: str
    state: RolloutState
    intent: Mapping[str, Any]
    progress: Mapping[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str
