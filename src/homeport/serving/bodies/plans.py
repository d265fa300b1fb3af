"""What would happen, and why things are as they are."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from homeport.serving.bodies.body import Body


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
