"""Real identities for tests of links: central's authority, sites with their intermediates, and nodes."""

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from homeport.adapters.identity.authority import FileAuthority, SiteAuthority, open_authority
from homeport.adapters.identity.site_authority import install_site_authority, request_site_authority
from homeport.adapters.identity.tls import Credentials
from homeport.adapters.link.grpc_node import GrpcSiteLink
from homeport.core.identity import spiffe
from homeport.core.model.identity import IdentityKind, Peer

WFM = "central"
HOUR = 3600.0


@dataclass
class TestRealm:
    """One trust domain below a folder."""

    __test__ = False

    folder: Path
    domain: str = "fleet.test"
    authority: FileAuthority = field(init=False)

    def __post_init__(self) -> None:
        self.authority = open_authority(self.folder / "authority", domain=self.domain)

    def central(self) -> Credentials:
        return self._leaf("central", spiffe.central_id(self.domain, WFM), self.authority, HOUR)

    def client(self, name: str, *, seconds: float = HOUR) -> Credentials:
        """What a site shows, to central and to its nodes."""
        return self._leaf(f"client-{name}", spiffe.client_id(self.domain, WFM, name), self.authority, seconds)

    def site(self, name: str = "home") -> "SiteStand":
        folder = self.folder / f"authority-{name}"
        issued = self.authority.issue_intermediate(
            request_site_authority(folder, site=name),
            spiffe_id=spiffe.site_authority_id(self.domain, name),
            lifetime_seconds=HOUR,
            now=datetime.now(UTC),
        )
        bundle = self.authority.bundle()
        authority = install_site_authority(folder, domain=self.domain, site=name, chain=issued.chain, bundle=bundle)
        return SiteStand(self, name, self.client(name), authority)

    def _leaf(
        self, folder: str, spiffe_id: str, authority: FileAuthority | SiteAuthority, seconds: float
    ) -> Credentials:
        credentials = Credentials(self.folder / folder, domain=self.domain, wfm=WFM)
        self.renew(credentials, spiffe_id, authority, seconds)
        return credentials

    def renew(
        self, credentials: Credentials, spiffe_id: str, authority: FileAuthority | SiteAuthority, seconds: float
    ) -> None:
        issued = authority.issue(
            credentials.request(),
            spiffe_id=spiffe_id,
            dns_names=("localhost",),
            lifetime_seconds=seconds,
            now=datetime.now(UTC),
        )
        credentials.install(issued.chain, self.authority.bundle())


@dataclass
class SiteStand:
    realm: TestRealm
    name: str
    credentials: Credentials
    authority: SiteAuthority

    def node(self, name: str, *, seconds: float = HOUR) -> Credentials:
        return self.realm._leaf(f"{self.name}-{name}", self.node_id(name), self.authority, seconds)

    def renew_node(self, node: Credentials, *, seconds: float = HOUR) -> None:
        self.realm.renew(node, node.spiffe_id, self.authority, seconds)

    def node_id(self, name: str) -> str:
        return spiffe.node_id(self.realm.domain, self.name, name)

    def server_context(self) -> ssl.SSLContext:
        return self.credentials.server_context("required", self.authority.anchors)

    def verify(self, ssl_object: ssl.SSLObject) -> Peer | None:
        return self.credentials.verify(ssl_object, datetime.now(UTC))


def link_of(node: Credentials, port: int) -> GrpcSiteLink:
    """As a real node dials its site."""
    return GrpcSiteLink(
        "127.0.0.1",
        port,
        tls=node.client_context,
        verify=lambda ssl_object: node.verify_server(ssl_object, datetime.now(UTC)),
    )


class Accepted:
    """The accepted-client policy, as a test wants it."""

    def __init__(self) -> None:
        self.removed: set[str] = set()

    def refusal(self, peer: Peer) -> str | None:
        is_removed = peer.spiffe_id in self.removed or peer.kind is not IdentityKind.NODE
        return f"{peer.spiffe_id} is not on the list of the accepted." if is_removed else None
