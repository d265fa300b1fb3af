"""The HTTP bodies that central and sites share. Field names are the same words as everywhere else.

Requests refuse unknown fields, so that a typing error is answered and not ignored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from homeport.vocabulary import NODE_ID_PATTERN, SITE_NAME_PATTERN

SiteNameText = Annotated[str, StringConstraints(pattern=SITE_NAME_PATTERN)]
NodeIdText = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]
WaveSize = Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[str, StringConstraints(max_length=10)]
ParameterValue = bool | int | float | str | list[bool | int | float | str]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


# --- problems ---------------------------------------------------------------------------------------------


class FieldProblem(Body):
    field: str
    message: str
    path: str | None = None
    line: int | None = None


class ProblemBody(Body):
    """RFC 9457, as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    instance: str | None = None
    retryable: bool = False
    retryAfterSeconds: int | None = None  # noqa: N815 - Margo's name for it
    errors: list[FieldProblem] = []


# --- apps -------------------------------------------------------------------------------------------------


class AddApps(Body):
    """Adds every app below `repository` that the filters leave. `repository` is a Git URL or a local path."""

    repository: str = Field(min_length=1, max_length=2000)
    branch: str | None = Field(default=None, max_length=200)
    category: str | None = Field(default=None, max_length=200)
    app_name: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=200)


class ComponentBody(Body):
    name: str
    properties: Mapping[str, Any]


class ProfileBody(Body):
    id: str
    type: str
    description: str
    device_constraints: Mapping[str, Any] | None
    components: Sequence[ComponentBody]


class AppBody(Body):
    id: str
    category: str
    app_name: str
    version: str
    margo_id: str
    name: str
    vendor: str
    description: str
    tags: Sequence[str]
    repository: str
    commit: str | None
    added_at: datetime
    added_by: str


class AppDetailBody(AppBody):
    profiles: Sequence[ProfileBody]
    parameters: Mapping[str, Any]
    configuration: Mapping[str, Any] | None


class AppsBody(Body):
    apps: Sequence[AppBody]


class AppsAddedBody(Body):
    added: Sequence[AppBody]
    unchanged: Sequence[AppBody]
    """Already in the catalog with the same content."""


# --- deployments ------------------------------------------------------------------------------------------


class TargetSite(Body):
    site_id: SiteNameText
    host_ids: list[NodeIdText] | None = None
    """The nodes to use; every eligible node of the site when left out."""


class PlacementBody(Body):
    """Which of a site's nodes get an instance."""

    mode: Literal["each", "one", "count"] = "each"
    count: int | None = Field(default=None, ge=1, le=100_000)
    """With `count`: on how many nodes."""
    selector: str = Field(default="", max_length=1000)
    """Labels that a node must have: `gpu,zone=a`."""


class PolicyWish(Body):
    retries: Annotated[int | None, Field(ge=0, le=100)] = None
    backoff: Annotated[str | None, Field(max_length=20)] = None
    rollback: bool | None = None
    deadline: Annotated[str | None, Field(max_length=20)] = None


class Deploy(Body):
    """Names an app by `app_id`, or by `app_name` with as much of `category` and `version` as it takes."""

    app_id: str | None = Field(default=None, max_length=64)
    app_name: str | None = Field(default=None, max_length=200)
    category: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=200)
    profile: str | None = Field(default=None, max_length=200)
    """A profile's id or type; may be left out when the app has only one."""
    name: str | None = Field(default=None, pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """What people call the deployment; one of each name at a site. The app's own name when left out."""
    sites: list[TargetSite] = Field(default=[], max_length=100_000)
    parameters: dict[str, ParameterValue] = {}
    placement: PlacementBody | None = None
    """On each eligible node when left out."""
    policy: PolicyWish | None = None
    """What its site does when it does not work; the usual when left out."""
    remove_images: bool = False
    """Whether its images go with it when it is deleted."""
    selector: str | None = Field(default=None, min_length=1, max_length=1000)
    """Every site whose labels match, now and later: `region=eu,tier!=test`. Makes it a rollout."""
    waves: list[WaveSize] = Field(default=[], max_length=100)
    """How many sites have it in all after each wave: `1`, `25%`, at last `100%`. Makes it a rollout."""
    bake: str | None = Field(default=None, max_length=20)
    """How long a wave is watched before the next begins, such as `5m`."""
    threshold: str | None = Field(default=None, max_length=5)
    """The share of a wave's reachable sites that must be INSTALLED; `100%` when left out."""


class DeployedBody(Body):
    rollout_id: str
    deployment_ids: Sequence[str]
    """In the order of `sites`."""
    commit: str
    unchanged: Sequence[str] = []
    """Those of `deployment_ids` that already were as asked for."""


class FailureBody(Body):
    code: str
    message: str
    source: str


class InstanceBody(Body):
    node_id: str
    """Empty for a deployment that its site could not place on any node."""
    state: str
    step: str
    revision: str | None
    running_revision: str | None
    generation: int
    attempt: int
    failure: FailureBody | None
    reachable: bool
    updated_at: datetime
    running_version: str | None = None
    """The app's version that runs; after a rollback another than the deployment's."""
    rejected_revision: str | None = None
    """What was rolled back here. It is not applied again until Git has another revision."""
    next_at: datetime | None = None
    """While FAILED: when the site tries again, or goes back, by itself."""


class HoldBody(Body):
    """A site operator's word that nothing is to change for a while."""

    site: str
    deployment_id: str | None
    """None: the whole site."""
    reason: str
    author: str
    at: datetime
    expires_at: datetime


class HoldsBody(Body):
    holds: Sequence[HoldBody]


class DeploymentBody(Body):
    id: str
    name: str
    site: str
    app_name: str
    app_category: str
    app_version: str
    margo_app_id: str
    profile: str
    profile_type: str
    state: str
    wanted: bool
    revision: str
    commit: str
    rollout_id: str | None
    parameters: Mapping[str, Any]
    instances: Sequence[InstanceBody]
    note: str
    """The one thing worth knowing at a glance: a failure, what is going on, who is unreachable."""
    problem: str | None
    hold: HoldBody | None = None
    """Why newer revisions and removals wait, while somebody holds them."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    archived_at: datetime | None


class DeploymentsBody(Body):
    deployments: Sequence[DeploymentBody]


class HistoryEntryBody(Body):
    at: datetime
    node_id: str
    incarnation: int
    before: str
    after: str
    happening: str
    actor: str
    reason: str
    revision: str | None
    failure: FailureBody | None
    verdict: str


class HistoryLineBody(HistoryEntryBody):
    """A line of the exported history."""

    id: int
    deployment_id: str
    name: str
    site: str


class HistoryBody(Body):
    deployment_id: str
    history: Sequence[HistoryEntryBody]


class RevisionBody(Body):
    revision: str
    app_version: str
    commit: str
    author: str
    at: datetime
    wanted: bool
    """Whether this is what Git asks for now."""
    nodes: Sequence[str]
    """Where it runs."""
    was_healthy: bool
    rolled_back: bool


class RevisionsBody(Body):
    deployment_id: str
    revisions: Sequence[RevisionBody]
    """As far as they are kept, newest first."""


class DifferenceBody(Body):
    path: str
    before: Any | None
    after: Any | None


class DiffBody(Body):
    deployment_id: str
    before: str
    after: str
    changes: Sequence[DifferenceBody]
    text: str
    """A unified diff of the two files."""


class GoBack(Body):
    to: Annotated[str | None, Field(max_length=200)] = None
    """Digits of a revision, or a version; the newest other one that was healthy when left out."""
    reason: Annotated[str, Field(max_length=1000)] = "asked for by hand"


class WentBackBody(Body):
    deployment_id: str
    revision: str
    app_version: str
    commit: str | None
    """None where Git could not be written yet; it is, as soon as it can be."""
    site_told: bool
    waits: str | None = None
    """What the site waits for before it goes back: a hold, with its end and its reason."""


class PlannedComponent(Body):
    component: str
    action: Literal["install", "replace", "keep", "remove"]
    why: str


class PlannedNode(Body):
    node_id: str
    components: Sequence[PlannedComponent]


class RefusedNode(Body):
    node_id: str
    why: str


class PlannedParameter(Body):
    name: str
    before: Any | None
    after: Any | None


class PlannedDeployment(Body):
    site: str
    deployment_id: str | None
    """None for one that does not exist yet."""
    name: str
    action: Literal["create", "update", "delete", "unchanged"]
    app_name: str
    version_before: str | None
    version_after: str | None
    revision_before: str | None
    """What is there now. What would follow it has no number yet: the rollout's id, made anew, is part of the file."""
    nodes: Sequence[PlannedNode]
    refused: Sequence[RefusedNode]
    parameters: Sequence[PlannedParameter]
    """Those that change."""
    waits: str | None = None
    """Why nothing would happen yet: no node is connected, say."""
    warnings: Sequence[str] = ()
    """What would fail, or be different from what one might expect: kinds of a chart that need Kubernetes, say."""


class PlannedWave(Body):
    number: int
    size: str
    sites: Sequence[str]


class PlanBody(Body):
    changes: bool
    deployments: Sequence[PlannedDeployment]
    restarts: int
    """How many running components would be replaced."""
    deletions: int
    waves: Sequence[PlannedWave] = []
    """Of a rollout: who would be in each wave, as things are now."""


# --- why ---------------------------------------------------------------------------------------------------


class DecisionBody(Body):
    """One link of the chain of decisions."""

    step: str
    """commit, file, site, placement, hold, pin, rollback, instance, node or next."""
    what: str
    why: str
    at: datetime | None


class WhyBody(Body):
    kind: Literal["deployment", "node"]
    name: str
    state: str
    chain: Sequence[DecisionBody]
    """From the commit to the container; the last one is what happens next."""


# --- sites and nodes --------------------------------------------------------------------------------------


class SiteBody(Body):
    name: str
    joined_at: datetime
    last_seen: datetime | None
    reachable: bool
    applied_commit: str | None
    problem: str | None
    software_version: str
    nodes: int
    nodes_live: int
    deployments: Mapping[str, int]
    """How many are in each state."""
    holds: Sequence[HoldBody] = []
    labels: Mapping[str, str] = {}


class LabelSite(Body):
    """Sets labels, and removes those that are null; the others stay."""

    labels: dict[Annotated[str, StringConstraints(max_length=128)], str | None] = Field(max_length=64)


class SitesBody(Body):
    sites: Sequence[SiteBody]


class GpuBody(Body):
    model: str
    manufacturer: str
    memory_bytes: int


class CapabilitiesBody(Body):
    cpu_cores: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    os: str
    architecture: str
    engine: str
    engine_version: str
    profile_types: Sequence[str]
    gpus: Sequence[GpuBody]


class NodeBody(Body):
    id: str
    hostname: str
    site: str
    liveness: Literal["live", "stale", "lost"]
    last_seen: datetime
    registered_at: datetime
    drain: str | None = None
    """Why somebody wants it empty; null while it takes work."""
    labels: Mapping[str, str]
    software_version: str
    capabilities: CapabilitiesBody


class NodesBody(Body):
    nodes: Sequence[NodeBody]


class OverviewBody(Body):
    """One call for the state of the whole fleet."""

    version: str
    role: str
    commit: str | None
    sites: Sequence[SiteBody]
    nodes: Sequence[NodeBody]
    deployments: Mapping[str, int]
    last_event_id: int


# --- events and health ------------------------------------------------------------------------------------


class EventBody(Body):
    """The `data:` of one server-sent event; its `event:` is `kind`, its `id:` is `id`."""

    id: int
    kind: str
    at: datetime
    message: str
    site: str | None
    deployment_id: str | None
    node_id: str | None
    data: Mapping[str, Any]


class HealthBody(Body):
    status: Literal["ok"]
    role: str
    version: str


class ReadyBody(Body):
    status: Literal["ready", "not ready"]
    role: str
    checks: Mapping[str, str]
    """Each check with `ok` or one sentence saying what is wrong."""


# --- site to central --------------------------------------------------------------------------------------


class JoinSite(Body):
    epoch: str = Field(min_length=1, max_length=64)
    """One life of the site's database; report sequences begin anew with each."""
    software_version: str = Field(default="", max_length=100)


class JoinedBody(Body):
    site: str
    last_sequence: int


class ReportItem(Body):
    sequence: int = Field(ge=1)
    body: dict[str, Any]


class Reports(Body):
    epoch: str = Field(min_length=1, max_length=64)
    reports: list[ReportItem] = Field(max_length=5000)
    seen: dict[str, datetime] = {}


class ReportedBody(Body):
    last_sequence: int


# --- audit ------------------------------------------------------------------------------------------------


class AuditEntryBody(Body):
    """One line of the audit trail. `hash` covers all fields and the hash before it."""

    position: int
    at: datetime
    actor: str
    role: str
    address: str
    action: str
    target: str
    result: Literal["done", "refused", "failed"]
    detail: Mapping[str, Any]
    previous: str
    hash: str


class AuditBody(Body):
    entries: list[AuditEntryBody]


class AuditVerdictBody(Body):
    """Whether the stored trail holds, and between which marks: `POSITION:HASH`."""

    ok: bool
    fault: str | None
    count: int
    base: str
    """The last entry that was forgotten, or position 0."""
    head: str
    """The newest entry."""
