"""Access rights of people, and the audit record of what they did."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from homeport.core.model.caller import Role
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import SiteName


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A person's or program's API token. Only its hash is stored; the token itself is shown once."""

    id: str
    name: str
    role: Role
    sites: tuple[SiteName, ...]
    """Empty: every site."""
    hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class AuditResult(StrEnum):
    BEGUN = "begun"
    """Written before an irreversible action, so that a kill in between still leaves an audit entry."""
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NewAudit:
    """Who did what to which thing, when, from where, with which result."""

    at: datetime
    actor: str
    role: str
    address: str
    action: str
    """As the API names it: `deployments.create`, `tokens.revoke`, `login`."""
    target: str
    result: AuditResult
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Never a secret, a token or a key."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`hash` covers the entry and the hash before it, so that a changed or missing entry is detected."""

    position: int
    entry: NewAudit
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A secret of one site, encrypted; the plain value is in no log, event, error or file of ours."""

    site: SiteName
    name: str
    ciphertext: bytes
    version: int
    updated_at: datetime
    updated_by: str
