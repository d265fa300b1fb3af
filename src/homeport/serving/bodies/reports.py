"""A site's reports to central."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from homeport.serving.bodies.body import Body, Message
from homeport.serving.bodies.deployments import InstanceFailureBody


class JoinSite(Message):
    epoch: str = Field(min_length=1, max_length=64)
    """One life of the site's database; report sequences start again with each."""
    software_version: str = Field(default="", max_length=100)


class RolledBackBody(Body):
    deployment_id: str
    node_id: str
    revision: str
    """What was rolled back there: it is not applied again until Git has another one."""
    good_revision: str
    """The revision that was rolled back to."""
    failure: InstanceFailureBody | None


class AheadBody(Body):
    generation: int
    incarnation: int
    rolled_back: Sequence[RolledBackBody] = []


class JoinedBody(Body):
    site: str
    last_sequence: int
    ahead: AheadBody | None = None
    """Set where central has records that the site has lost: the site continues above these numbers, and does a full
    resync."""
    is_let_in: bool = True
    """False for an epoch that a later start of the site has used too: the site must begin a new one first."""
    protocol: int
    """Central's protocol version."""
    features: Sequence[str]
    """What central supports beyond the first release."""


class ReportItem(Message):
    sequence: int = Field(ge=1, le=2**53)
    body: dict[str, Any]


class Reports(Message):
    epoch: str = Field(min_length=1, max_length=64)
    reports: list[ReportItem] = Field(max_length=5000)
    seen: dict[str, datetime] = Field(default={})


class SetAsideBody(Body):
    sequence: int
    code: str
    """`unknown-kind` is processed later by a central that knows the kind; `invalid-input` is kept for inspection."""
    why: str


class ReportedBody(Body):
    last_sequence: int
    set_aside: Sequence[SetAsideBody] = []
    """Reports that were stored as received, because this central cannot read them."""
