"""The caller of a use-case. Every use-case that changes or shows something takes one."""

from enum import StrEnum

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import SiteName


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class CallerKind(StrEnum):
    """How the caller was authenticated."""

    LOCAL = "local"
    """A local user of this machine, or the product itself."""
    TOKEN = "token"
    MACHINE = "machine"
    """A site or a client with a certificate. It has no role: it may perform machine actions, for itself alone."""
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role
    address: str = ""
    """Where the request came from; empty for work inside the process."""
    sites: tuple[SiteName, ...] = ()
    """The only sites it may see and change. Empty: every site."""
    kind: CallerKind = CallerKind.LOCAL
    key: str = ""
    """How it is identified: a token's id or a machine's SPIFFE ID."""


INTERNAL = Caller("homeport", Role.ADMIN)
"""The product's own loops."""
