"""Machine identities: SPIFFE IDs, certificate contents, and decisions about join requests."""

from datetime import datetime
from enum import StrEnum
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import SiteName


class IdentityKind(StrEnum):
    """What an identity may do; its SPIFFE ID has a form for each."""

    CENTRAL = "central"
    """spiffe://<domain>/margo/wfm/<wfm-id>"""
    CLIENT = "client"
    """spiffe://<domain>/margo/wfm/<wfm-id>/client/<name>: a Homeport site, or another vendor's Margo client."""
    SITE_AUTHORITY = "site-authority"
    """spiffe://<domain>/homeport/site/<site>: an intermediate that may only sign for the site's own nodes."""
    NODE = "node"
    """spiffe://<domain>/homeport/site/<site>/node/<node>"""


@dataclass(frozen=True, slots=True)
class CertificateView:
    """The parts of a certificate that the rules need; an adapter reads them from the certificate."""

    uri_sans: tuple[str, ...]
    is_ca: bool
    signs_certificates: bool
    """keyCertSign or cRLSign is among its key usages."""
    not_before: datetime
    not_after: datetime
    key_kind: str
    """ec-p256, ec-p384, ed25519, rsa, or another name."""
    key_bits: int
    fingerprint: str
    """SHA-256 of the DER form, hex."""
    spki: str
    """SHA-256 of SubjectPublicKeyInfo, hex: the same for a renewed certificate of the same key."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A machine whose certificate has been verified, leaf first and anchor last."""

    spiffe_id: str
    kind: IdentityKind
    name: str
    """Of a client: its name. Of a node: its id."""
    site: SiteName | None
    """The site that a node belongs to, or the client's own site."""
    chain: tuple[CertificateView, ...]


class IdentityStatus(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"
    REMOVED = "removed"


ANY_KEY: Final = ""
"""In a record: any key of this name is accepted. An external authority (SPIRE, for one) makes a new key per
renewal."""


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """One entry of the accepted-client policy: a certificate alone admits no machine."""

    spiffe_id: str
    kind: IdentityKind
    name: str
    site: SiteName | None
    spki: str
    """Its accepted key, or ANY_KEY; renewal requires proof of possession of this key."""
    standing: IdentityStatus
    csr: bytes | None
    """While pending: the certificate request to sign."""
    not_after: datetime | None
    """When its newest certificate expires; None before the first."""
    address: str
    requested_at: datetime
    decided_at: datetime | None
    decided_by: str


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A one-time permission to join. Only its hash is stored."""

    id: str
    kind: IdentityKind
    """CLIENT for a site, NODE for a node of `site`."""
    site: SiteName
    hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    used_at: datetime | None = None
    used_by: str = ""


@dataclass(frozen=True, slots=True)
class Issued:
    """A signed certificate with the intermediates a verifier needs, PEM, leaf first."""

    chain: bytes
    not_after: datetime


@dataclass(frozen=True, slots=True)
class TrustBundle:
    domain: str
    sequence: int
    refresh_hint_seconds: int
    anchors: tuple[bytes, ...]
    """DER. A certificate that chains to any one of them is trusted; an accepted bundle replaces all earlier ones."""
