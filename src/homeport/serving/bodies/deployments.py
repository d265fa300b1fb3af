"""Deployments: requests, and their state on each node."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, StringConstraints

from homeport.core.margo.text import DEVICE_ID_LENGTH_MAX, DEVICE_REFERENCE_PATTERN
from homeport.serving.bodies.apps import DESCRIPTION_LENGTH_MAX
from homeport.serving.bodies.body import Body, NodeIdText, PageBody, SiteNameText
from homeport.serving.bodies.fleet import HoldBody
from homeport.vocabulary import DEPLOYMENT_NAME_PATTERN

WaveSize = Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[str, StringConstraints(max_length=10)]
ParameterValue = bool | int | float | str | list[bool | int | float | str]


class TargetSite(Body):
    site_id: SiteNameText
    host_ids: list[NodeIdText] | None = None
    """The nodes to use. Left out: as before; `[]`: every eligible node of the site."""
    device_id: str | None = Field(default=None, max_length=DEVICE_ID_LENGTH_MAX, pattern=DEVICE_REFERENCE_PATTERN)
    """Of a Margo client: the device to use, `gateway/child` for a child device, `gateway/*` for one that its gateway
    chooses. Left out: the one that has it, else the first that fits."""


class PlacementBody(Body):
    """Which of a site's nodes get an instance."""

    mode: Literal["each", "one", "count"] | None = None
    count: int | None = Field(default=None, ge=1, le=100_000)
    """With `count`: the number of nodes."""
    selector: str | None = Field(default=None, max_length=1000)
    """Labels that a node must have: `gpu,zone=a`."""


class PolicyBody(Body):
    retries: Annotated[int | None, Field(ge=0, le=100)] = None
    backoff: Annotated[str | None, Field(max_length=20)] = None
    rollback: bool | None = None
    deadline: Annotated[str | None, Field(max_length=20)] = None
    on_unhealthy: Literal["restart", "report"] | None = None
    """What a node does when a component becomes unhealthy after it was installed."""


class Deploy(Body):
    """Names an app by `app_id`, or by `app_name` with `category` and `version` where needed. A plan may include the
    app itself, as `description`.

    Values that were given before and are not given again are kept; see `reset_values`.
    """

    app_id: str | None = Field(default=None, max_length=64)
    app_name: str | None = Field(default=None, max_length=200)
    category: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=200)
    description: str | None = Field(default=None, min_length=1, max_length=DESCRIPTION_LENGTH_MAX)
    """With `plan=true`: the margo.yaml of an app that is not in the catalog yet."""
    compose: str | None = Field(default=None, max_length=DESCRIPTION_LENGTH_MAX)
    """With `description`: the compose file of its component where no registry has it yet, for the names of images."""
    profile: str | None = Field(default=None, max_length=200, validation_alias=AliasChoices("profile", "deploy_type"))
    """A profile's id or type; may be left out when the app has only one, and in an update."""
    name: str | None = Field(default=None, pattern=DEPLOYMENT_NAME_PATTERN)
    """The deployment's name, unique within a site. The app's own name when left out."""
    sites: list[TargetSite] = Field(default=[], max_length=100_000)
    parameters: dict[str, ParameterValue] = Field(default={})
    placement: PlacementBody | None = None
    """Omitted fields keep their previous value; initially, each eligible node."""
    policy: PolicyBody | None = None
    """What its site does after a failure. Omitted fields keep their previous value; initially, the defaults."""
    remove_images: bool | None = None
    """Whether its images are removed with it when it is deleted."""
    reset_values: bool = False
    """Start from the defaults, instead of keeping the previous parameters, placement and policy."""
    selector: str | None = Field(default=None, min_length=1, max_length=1000)
    """Every site whose labels match, now and later: `region=eu,tier!=test`. Makes it a rollout."""
    waves: list[WaveSize] = Field(default=[], max_length=100)
    """How many sites have it in total after each wave: `1`, `25%`, finally `100%`. Makes it a rollout."""
    bake: str | None = Field(default=None, max_length=20)
    """How long a wave is watched before the next begins, such as `5m`."""
    threshold: str | None = Field(default=None, max_length=5)
    """The share of a wave's reachable sites that must be INSTALLED; `100%` when left out."""


class KeptBody(Body):
    """What happened to values that were given before and not again."""

    site: str
    kept: Mapping[str, str]
    """Parameters that differ from the defaults, placement and policy that stay."""
    dropped: Mapping[str, str]
    """Parameters that the new version does not have, and why they were dropped."""


class Again(Body):
    reason: str = Field(default="", max_length=500)
    """The reason; stored in Git and shown to others."""


class AskedBody(Body):
    deployment_id: str
    revision: str
    """The revision of the deployment's file after the request."""
    commit: str
    last_event_id: int = 0
    """The last event before this request: follow the events from here."""


class DeployedBody(Body):
    rollout_id: str
    deployment_ids: Sequence[str]
    """In the order of `sites`."""
    commit: str
    unchanged: Sequence[str] = []
    """Those of `deployment_ids` that already matched the request."""
    kept: Sequence[KeptBody] = []
    """Where values are kept or dropped; of the first hundred sites."""
    last_event_id: int = 0
    """The last event before this request: follow the events from here."""


class InstanceFailureBody(Body):
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
    failure: InstanceFailureBody | None
    reachable: bool
    updated_at: datetime
    running_version: str | None = None
    """The running app version; after a rollback it differs from the deployment's."""
    rejected_revision: str | None = None
    """The revision that was rolled back here. It is not applied again until Git has another revision."""
    next_at: datetime | None = None
    """While FAILED: when the site retries, or rolls back, by itself."""
    health: Literal["healthy", "unhealthy", "unknown"] = "unknown"
    """The health that its node reports. `unknown` before installation, and while the node is unreachable."""
    health_since: datetime | None = None
    """Since when it is unhealthy."""
    health_reason: str = ""
    """Why it is unhealthy."""


class DeploymentBody(Body):
    id: str
    name: str
    site: str
    app_name: str
    app_category: str
    app_version: str
    """The wanted version."""
    running_versions: Sequence[str] = ()
    """The versions that run on its nodes: not the wanted one while an update waits, failed or was rolled back."""
    behind: bool = False
    """Whether another release runs on some node than Git wants."""
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
    """The most important fact at a glance: a failure, the current activity, an unreachable node."""
    problem: str | None
    hold: HoldBody | None = None
    """The hold that delays newer revisions and removals."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    archived_at: datetime | None


class DeploymentsBody(PageBody):
    deployments: Sequence[DeploymentBody]
