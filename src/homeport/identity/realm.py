"""The ids that a registrar may sign: central's for the clients of its domain, a site's for its own nodes."""

import re

from homeport.core.identity import spiffe
from homeport.core.model.identity import IdentityKind, JoinToken
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import NODE_ID_PATTERN, SITE_NAME_PATTERN, SiteName


@dataclass(frozen=True, slots=True, kw_only=True)
class Realm:
    domain: str
    wfm: str
    site: SiteName | None = None
    """None at central."""
    is_outside: bool = False
    """Whether an external authority issues certificates: then nothing is signed here, and machines are known by
    name."""
    svid_seconds: float = 86_400.0
    """A day: a stolen certificate soon expires, and half a day is left to survive an outage."""
    intermediate_seconds: float = 30 * 86_400.0
    """A month: how long a site can admit and renew its nodes without central."""

    @property
    def kind(self) -> IdentityKind:
        return IdentityKind.CLIENT if self.site is None else IdentityKind.NODE

    def id_of(self, name: str) -> str:
        """The SPIFFE ID for a name. Raises InvalidInput for one that cannot be a name here."""
        self._require(name, NODE_ID_PATTERN, "letters, digits, dots, dashes and underscores, up to 128")
        if self.site is None:
            return spiffe.client_id(self.domain, self.wfm, name)
        return spiffe.node_id(self.domain, self.site, name)

    def authority_id_of(self, name: str) -> str:
        """The id of the intermediate of the site with this name."""
        self._require(name, SITE_NAME_PATTERN, "small letters, digits and dashes, up to 63")
        return spiffe.site_authority_id(self.domain, SiteName(name))

    def seconds_of(self, kind: IdentityKind) -> float:
        return self.intermediate_seconds if kind is IdentityKind.SITE_AUTHORITY else self.svid_seconds

    def site_of(self, name: str) -> SiteName | None:
        return self.site or (SiteName(name) if re.fullmatch(SITE_NAME_PATTERN, name) else None)

    def mismatch(self, token: JoinToken, name: str) -> str | None:
        """Why this token does not admit a machine of this name here, as a sentence."""
        if token.kind is not self.kind:
            return f"This join token is for a {_NOUN[token.kind]}, not for a {_NOUN[self.kind]}."
        wanted = self.site or name
        if token.site != wanted:
            return f"This join token is for site {token.site}, not for {wanted}."
        return None

    def _require(self, name: str, pattern: str, allowed: str) -> None:
        if not re.fullmatch(pattern, name):
            raise InvalidInput(problems=[Problem("name", f'"{name[:200]}" is not a valid name: use {allowed}')])


_NOUN = {IdentityKind.CLIENT: "site", IdentityKind.NODE: "node"}
