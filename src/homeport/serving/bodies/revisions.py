"""What a deployment was, what changed, and the way back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from homeport.serving.bodies.body import Body
from homeport.serving.bodies.deployments import FailureBody


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
