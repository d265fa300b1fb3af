"""A rollout: one app version delivered to many sites, in waves. Its desired state is the file `rollouts/<id>.yaml`;
`Intent` is that file, parsed."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from homeport.core.model.app import Value
from homeport.core.model.deployment import (
    NO_PLACEMENT_OVERRIDES,
    NO_POLICY_OVERRIDES,
    PlacementOverrides,
    PolicyOverrides,
)
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Commit, RolloutCommand, RolloutId, RolloutSiteStatus, RolloutState, SiteName


@dataclass(frozen=True, slots=True)
class Size:
    """How many sites have the release in total once a wave has begun: a count, or a share of the group."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Rounded up: a share of a small group is at least one site."""
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
    """Its sites, recorded when the wave begins; None before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    id: RolloutId
    name: str
    """The name of the deployments it creates."""
    category: str
    app_name: str
    version: str
    profile: str
    created_at: datetime
    author: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    placement: PlacementOverrides = NO_PLACEMENT_OVERRIDES
    policy: PolicyOverrides = NO_POLICY_OVERRIDES
    remove_images: bool | None = None
    keep_values: bool = False
    """Whether a site keeps its previous values where the rollout sets none; otherwise the app's defaults apply."""
    sites: tuple[SiteName, ...] = ()
    selector: Selector = ANYTHING
    waves: tuple[Wave, ...] = (Wave(EVERYBODY),)
    bake_seconds: float = 0.0
    threshold_percent: int = 100
    word: RolloutCommand = RolloutCommand.RUNNING
    joined: tuple[SiteName, ...] = ()
    """Sites that joined the group after the last wave, and got its release."""

    @property
    def given(self) -> frozenset[SiteName]:
        """Every site that has been given the release."""
        return frozenset(site for wave in self.waves for site in wave.sites or ()) | frozenset(self.joined)

    @property
    def waves_begun(self) -> int:
        return sum(wave.sites is not None for wave in self.waves)

    def targets(self, site: SiteName, labels: Mapping[str, str]) -> bool:
        return site in self.sites or (bool(self.selector) and self.selector.unmet(labels) is None)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout as central knows it: its desired state and its progress."""

    intent: Intent
    state: RolloutState
    first_commit: Commit
    """The commit in which it was first seen: a later change at a site takes precedence over it."""
    version: int
    updated_at: datetime
    reason: str = ""
    """Why it is in this state, or what it waits for, as a sentence."""
    watched_seconds: float | None = None
    """For how long the newest wave has had enough healthy sites; None while it has not."""
    refused: Mapping[SiteName, str] = field(default_factory=dict)
    """Sites whose file could not be written, and why."""
    problem: str | None = None
    """Why its file in Git is not applied."""


@dataclass(frozen=True, slots=True)
class Member:
    """One site of a rollout and its current state there."""

    site: SiteName
    standing: RolloutSiteStatus
    wave: int | None = None
    """From 0; None for a site that waits, or that joined later."""
    is_reachable: bool = True
    why: str = ""
    is_held: bool = False
    """Whether an operator has put the site or deployment on hold."""

    @property
    def can_answer(self) -> bool:
        """Whether it would apply a release that it is given now."""
        return self.is_reachable and not self.is_held


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """A rollout as stored: its intent and its progress as plain data."""

    id: RolloutId
    name: str
    state: RolloutState
    intent: Mapping[str, Any]
    progress: Mapping[str, Any]
    version: int
    created_at: datetime
    updated_at: datetime
    created_by: str
