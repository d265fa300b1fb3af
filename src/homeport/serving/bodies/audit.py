"""The audit trail."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from homeport.serving.bodies.body import Body, PageBody


class AuditEntryBody(Body):
    """One entry of the audit trail. `hash` covers all fields and the hash before it."""

    position: int
    at: datetime
    actor: str
    role: str
    address: str
    action: str
    target: str
    result: Literal["begun", "done", "refused", "failed"]
    detail: Mapping[str, Any]
    previous: str
    hash: str


class AuditBody(PageBody):
    entries: list[AuditEntryBody]


class AuditVerdictBody(Body):
    """Whether the stored trail is intact, and between which marks: `POSITION:HASH`."""

    ok: bool
    fault: str | None
    count: int
    base: str
    """The last expired entry, or position 0."""
    head: str
    """The newest entry."""
