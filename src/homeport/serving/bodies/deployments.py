"""Deployments: what is asked for, and how it stands on each node."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from homeport.serving.bodies.body import Body, NodeIdText, SiteNameText
from homeport.serving.bodies.fleet import HoldBody

WaveSize = Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[str, StringConstraints(max_length=10)]
ParameterValue = bool | int | float | str | list[bool | int | float | str]


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
    parameters: dict[str, ParameterValue] = Field(default={})
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
