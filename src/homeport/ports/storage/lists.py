"""Lists that are read in pages and counted by the database, all by the same two queries of the store.

A page ends with the key of its last item, and the next one begins after that key (keyset pagination): every page
costs the same, and nothing is shown twice when items are added in between. A filter that knows the site of each item
(`Scoped`) may also be used for callers limited to some sites; the others cannot.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from homeport.core.jobs.job import Job
from homeport.core.model.access import ApiToken, AuditEntry, SecretRecord
from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, Site
from homeport.core.model.identity import IdentityRecord, IdentityStatus
from homeport.core.model.node import Node
from homeport.core.model.rollout import RolloutRow
from homeport.core.pipelines.model import Definition, Run
from homeport.core.values.filters import Parts
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import JobState, Liveness, NodeId, RolloutState, RunState, SiteName, State

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Where = TypeVar("Where")

Key = tuple[str | int | datetime, ...]
"""An item's position in the order of its list; unique per item."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[Item, Where]):
    """One list. The adapter knows how its items are stored."""

    name: str
    orders: Mapping[str, tuple[type, ...]]
    """The sort orders, the default first, with the types of each order's keys."""

    @property
    def default_order(self) -> str:
        return next(iter(self.orders))

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Cut:
    """The requested part of a list."""

    limit: int | None
    after: Key | None = None
    order: str | None = None
    """None for the list's default order."""


WHOLE: Final = Cut(limit=None)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item_co]):
    items: Sequence[Item_co]
    next: Key | None = None
    """The next page begins after this key; None where this is the last."""


class Scoped(Protocol):
    """A filter that can be narrowed to the sites a caller may see."""

    def within(self, sites: Collection[SiteName]) -> Self: ...


Seen = TypeVar("Seen", bound=Scoped)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtSites:
    """For items that name their site."""

    site: SiteName | None = None
    sites: frozenset[SiteName] | None = None
    """Only items of these sites; None for every site."""

    def within(self, sites: Collection[SiteName]) -> Self:
        given = frozenset(sites)
        return replace(self, sites=given if self.sites is None else self.sites & given)


@dataclass(frozen=True, slots=True)
class ReachWindow:
    """A site that was last seen between these two times is reachable."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFilter(AtSites):
    name: str | None = None
    contains: str | None = None
    """Only those whose `name@site` contains this, whatever the case of its letters."""
    parts: Parts = ()
    """Of the filter language; a label is one of its site, or of a node that has it."""
    app_name: str | None = None
    state: State | None = None
    rollout_id: str | None = None
    node: NodeId | None = None
    """Only those with an instance on this node."""
    archived: bool = False
    attention: bool = False
    """Only those that failed, are unhealthy, or are settled at another revision than Git's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFilter(AtSites):
    contains: str | None = None
    parts: Parts = ()
    """Of the filter language; `state` is live, lost, or the state of a deployment there."""
    selector: Selector = ANYTHING
    in_reach: bool | None = None
    attention: bool = False
    """Only those that are unreachable or have a problem."""
    window: ReachWindow | None = None
    """None where every site counts as reachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFilter(AtSites):
    contains: str | None = None
    parts: Parts = ()
    """Of the filter language; `state` is its liveness, drained, or the state of what it has."""
    ids: frozenset[NodeId] | None = None
    liveness: Liveness | None = None
    attention: bool = False
    """Only those that are stale or lost, or have a problem. UNKNOWN is a problem of their site."""
    window: ReachWindow | None = None
    """For central: nodes of an unreachable site are UNKNOWN. None at the site itself, which knows their
    liveness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFilter(AtSites):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFilter(AtSites):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter(AtSites):
    contains: str | None = None
    """Only those whose `id@site` contains this."""
    states: frozenset[JobState] | None = None
    node: NodeId | None = None
    """Only those whose newest attempt is on this node."""
    delivered: bool | None = None
    """Whether their site has them."""
    cancelled: bool | None = None
    """Whether their cancellation was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFilter(AtSites):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter(AtSites):
    """Runs of pipelines. Those of the whole fleet have no site, and are hidden from who may see some sites only."""

    pipeline: str | None = None
    states: frozenset[RunState] | None = None
    depth: int | None = None
    """How many runs called each other until this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFilter:
    states: frozenset[RolloutState] | None = None
    name: str | None = None
    contains: str | None = None

    def within(self, sites: Collection[SiteName]) -> Self:
        """The sites of a rollout follow from sites and deployments: the view counts those that the caller may see,
        and leaves the rollout out where there are none."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AppFilter:
    contains: str | None = None
    category: str | None = None
    app_name: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFilter:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityFilter:
    standing: IdentityStatus | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    actor: str | None = None
    action: str | None = None
    """An action, or the noun alone."""
    since: datetime | None = None


# fmt: off
DEPLOYMENTS: Final[Listing[Deployment, DeploymentFilter]] = Listing(
    "deployments", {"site": (str, str, str), "updated": (datetime, str)})
SITES: Final[Listing[Site, SiteFilter]] = Listing("sites", {"name": (str,), "joined": (datetime, str)})
NODES: Final[Listing[Node, NodeFilter]] = Listing("nodes", {"site": (str, str), "seen": (datetime, str, str)})
HOLDS: Final[Listing[Hold, HoldFilter]] = Listing("holds", {"site": (str, str)})
SECRETS: Final[Listing[SecretRecord, SecretFilter]] = Listing("secrets", {"site": (str, str)})
JOBS: Final[Listing[Job, JobFilter]] = Listing(
    "jobs", {"created": (datetime, str, str), "oldest": (datetime, str, str), "updated": (datetime, str, str)})
PIPELINES: Final[Listing[Definition, PipelineFilter]] = Listing("pipelines", {"name": (str,)})
PIPELINE_RUNS: Final[Listing[Run, RunFilter]] = Listing(
    "pipeline-runs", {"created": (datetime, str), "oldest": (datetime, str)})
ROLLOUTS: Final[Listing[RolloutRow, RolloutFilter]] = Listing("rollouts", {"created": (datetime, str)})
TOKENS: Final[Listing[ApiToken, TokenFilter]] = Listing("tokens", {"created": (datetime, str)})
IDENTITIES: Final[Listing[IdentityRecord, IdentityFilter]] = Listing(
    "identities", {"name": (str,), "requested": (datetime, str)})
AUDIT: Final[Listing[AuditEntry, AuditFilter]] = Listing("audit", {"newest": (int,), "oldest": (int,)})
# fmt: on

Counts = Mapping[tuple[Any, ...], int]
"""The number of items for each combination of the grouped columns."""
