"""Revisions of a deployment, their differences, and rollback."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from homeport.serving.bodies.body import Body, PageBody
from homeport.serving.bodies.deployments import InstanceFailureBody


class HistoryEntryBody(Body):
    at: datetime
    node_id: str
    incarnation: int
    before: str
    after: str
    trigger: str
    actor: str
    reason: str
    revision: str | None
    failure: InstanceFailureBody | None
    verdict: str


class HistoryLineBody(HistoryEntryBody):
    """A line of the exported history."""

    id: int
    deployment_id: str
    name: str
    site: str


class HistoryBody(PageBody):
    deployment_id: str
    history: Sequence[HistoryEntryBody]


class RevisionBody(Body):
    revision: str
    app_version: str
    commit: str
    author: str
    at: datetime
    wanted: bool
    """Whether this is the current revision in Git."""
    nodes: Sequence[str]
    """Where it runs."""
    was_healthy: bool
    rolled_back: bool


class RevisionsBody(Body):
    deployment_id: str
    revisions: Sequence[RevisionBody]
    """As far as they are stored, newest first."""


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
    """A prefix of a revision, or a version; the newest other one that was healthy when left out."""
    reason: Annotated[str, Field(max_length=1000)] = "asked for by hand"


class WentBackBody(Body):
    deployment_id: str
    revision: str
    app_version: str
    commit: str | None
    """None where Git could not be written yet; it is written as soon as possible."""
    site_told: bool
    waits: str | None = None
    """What delays the rollback at the site: a hold, with its end and its reason."""
    last_event_id: int = 0
    """The last event before this request: follow the events from here."""
