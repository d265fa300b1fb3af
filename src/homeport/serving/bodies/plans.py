"""Plans, and explanations of the current state."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from homeport.serving.bodies.body import Body


class PlannedImage(Body):
    service: str
    """Of the compose file; the component's own name where it is a single image."""
    before: str | None
    after: str | None
    """Equal to `before` where it stays."""


class PlannedComponent(Body):
    component: str
    action: Literal["install", "replace", "keep", "remove"]
    why: str
    images: Sequence[PlannedImage] | None = None
    """What it runs now, and would run. None where that is not known, and for what stays or goes."""
    pull_bytes: int | None = None
    """How much the node would pull at most; it may have some of it already. None where that is not known."""


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
    device: str | None = None
    """Of a Margo client: the device that it is for."""
    version_before: str | None
    version_after: str | None
    revision_before: str | None
    """The current revision. The next one is not known yet: the rollout's new id is part of the file."""
    nodes: Sequence[PlannedNode]
    refused: Sequence[RefusedNode]
    parameters: Sequence[PlannedParameter]
    """Those that change."""
    kept: Mapping[str, str] = {}
    """Values that were given before, are not given again and stay."""
    dropped: Mapping[str, str] = {}
    """Parameters that were given before and that the new version does not have, and why they are dropped."""
    waits: str | None = None
    """Why nothing would happen yet, for example because no node is connected."""
    warnings: Sequence[str] = ()
    """What would fail, or may be unexpected, for example kinds of a chart that need Kubernetes."""


class PlannedWave(Body):
    number: int
    size: str
    sites: Sequence[str]


class PlanBody(Body):
    changes: bool
    deployments: Sequence[PlannedDeployment]
    restarts: int
    """The number of running components that would be replaced."""
    deletions: int
    waves: Sequence[PlannedWave] = []
    """Of a rollout: the sites of each wave, as of now."""


class DecisionBody(Body):
    """One link of the chain of decisions."""

    step: str
    """commit, file, site, placement, hold, pin, rollback, history, instance, health, node or next; for a job also
    job, attempt and cancel, for a run of a pipeline run, step and item."""
    what: str
    why: str
    at: datetime | None


class WhyBody(Body):
    kind: Literal["deployment", "node", "job", "run"]
    name: str
    state: str
    chain: Sequence[DecisionBody]
    """From the commit to the container; the last one is what happens next."""
