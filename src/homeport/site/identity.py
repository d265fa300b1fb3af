"""A site's identities: its membership with central, its authority over its nodes, and its own certificate for them.
The last two need no central: a disconnected site can still admit and renew its nodes.

With `svid_folder` all three are replaced by one certificate that an external authority renews; it certifies the nodes
as well, and the site decides which of them it accepts.
"""

import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

import anyio.to_thread

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.external_svid import OutsideAuthority, open_outside, outside_id
from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.identity.keys import csr_spki
from homeport.adapters.identity.membership import JoinCommand, Membership
from homeport.adapters.identity.pins import pin_of
from homeport.adapters.identity.renewal import join
from homeport.adapters.identity.site_authority import SiteAuthority
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.identity.spiffe import SERVER_NAME
from homeport.core.model.identity import Peer
from homeport.errors import HomeportError, Refused
from homeport.identity.accepted_clients import AcceptedClients
from homeport.identity.enrolment import Auditor, Registrar
from homeport.identity.realm import Realm
from homeport.identity.register import Register
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock, Store
from homeport.site.settings import SiteSettings

log = get_log("homeport.site")


@dataclass(slots=True)
class SiteIdentity:
    settings: SiteSettings
    clock: Clock
    membership: Membership | None
    """None with an external authority."""
    client: Credentials
    """For central."""
    server: Credentials
    """For nodes and users, signed by the site itself; the same as for central with an external authority."""
    authority: SiteAuthority | OutsideAuthority
    contexts: list[ssl.SSLContext] = field(default_factory=list)
    """Those that trust the intermediate, and must follow its renewal."""

    @property
    def bundle(self) -> bytes:
        return bundles.encode(self.client.bundle)

    @property
    def is_outside(self) -> bool:
        return self.membership is None

    @property
    def reach(self) -> Mapping[str, str]:
        return {} if self.membership is None else self.membership.reach or {}

    def server_tls(self) -> ServerTls:
        """For users, and for nodes: those that join have no certificate yet, others fetch content with theirs."""
        if isinstance(self.authority, OutsideAuthority):
            return ServerTls(self.server, self.settings.tls_files, client="optional")
        made = ServerTls(self.server, self.settings.tls_files, client="optional", anchors=self.authority.anchors)
        self.contexts += made.contexts
        return made

    def node_context(self) -> ssl.SSLContext:
        if isinstance(self.authority, OutsideAuthority):
            return self.server.server_context("required")
        context = self.server.server_context("required", anchors=self.authority.anchors)
        self.contexts.append(context)
        return context

    def verify_node(self, ssl_object: ssl.SSLObject) -> Peer | None:
        return self.server.verify(ssl_object, self.clock.now())

    def refusal(self, peer: Peer) -> str | None:
        """Why a node of an open stream is no longer trusted: time and anchors may have changed since."""
        try:
            self.server.recheck(peer, self.clock.now())
        except Refused as error:
            return str(error)
        return None

    def verify_central(self, ssl_object: ssl.SSLObject | ssl.SSLSocket) -> Peer:
        return self.client.verify_server(ssl_object, self.clock.now())

    # --- these block, and run in a thread; they are for a site that has joined ---

    def renew_client(self) -> None:
        self._joined[0].renew(self.client)

    def renew_authority(self) -> None:
        self.authority = self._joined[0].renew_authority(self.client)
        self.renew_server()

    def renew_server(self) -> None:
        """From our own intermediate, so that nodes can authenticate us however long central is unreachable."""
        _, authority = self._joined
        issued = authority.issue(
            self.server.request(f"site {self.settings.name}"),
            spiffe_id=authority.spiffe_id,
            dns_names=("localhost", socket.gethostname(), SERVER_NAME),
            lifetime_seconds=self.settings.svid_seconds,
            now=self.clock.now(),
        )
        self.server.install(issued.chain, self.client.bundle)

    def trust_authority(self) -> None:
        """On the event loop, because contexts must not change while a handshake begins."""
        _, authority = self._joined
        for context in self.contexts:
            self.server.trust(context, authority.anchors)

    @property
    def intermediate(self) -> SiteAuthority:
        return self._joined[1]

    @property
    def _joined(self) -> tuple[Membership, SiteAuthority]:
        assert self.membership is not None and isinstance(self.authority, SiteAuthority), "this site has not joined"
        return self.membership, self.authority

    def registrar(self, store: Store, policy: AcceptedClients, note: Auditor) -> Registrar:
        realm = Realm(
            domain=self.client.domain,
            wfm=self.client.wfm,
            site=self.settings.name,
            is_outside=self.is_outside,
            svid_seconds=self.settings.svid_seconds,
        )
        return Registrar(
            store=store,
            clock=self.clock,
            register=Register(realm=realm, authority=lambda: self.authority, spki_of=csr_spki),
            policy=policy,
            random_bytes=secrets.token_bytes,
            note=note,
        )


async def open_identity(
    settings: SiteSettings, clock: Clock, *, on_waiting: Callable[[str], None] = lambda key: None
) -> SiteIdentity | None:
    """None for a site that has not joined and has no join settings: then everything stays on this machine."""
    if settings.svid_folder is not None:
        return await anyio.to_thread.run_sync(_from_outside, settings, settings.svid_folder, clock)
    folder = settings.data / "identity"
    server_csr = await anyio.to_thread.run_sync(_server_csr, settings) if _is_concerned(settings) else b""
    membership = Membership(folder, reach=_reach(settings, server_csr))
    if not membership.is_member:
        ticket = _ticket(settings)
        if ticket is None:
            return None
        await join(membership, ticket, name=settings.name, site=settings.name, on_waiting=on_waiting)
    return await anyio.to_thread.run_sync(_opened, settings, clock, membership)


def _from_outside(settings: SiteSettings, folder: Path, clock: Clock) -> SiteIdentity:
    """Its domain and its central are read from its own id."""
    found = outside_id(folder)
    match spiffe.split(found):
        case (domain, ("margo", "wfm", wfm, "client", name)) if name == settings.name:
            credentials = open_outside(folder, domain=domain, wfm=wfm, expected=found)
            return SiteIdentity(settings, clock, None, credentials, credentials, OutsideAuthority(credentials))
    raise Refused(
        f"The certificate in {folder} is for {found}, which is not site {settings.name}.",
        hint=f"Have the authority issue spiffe://DOMAIN/margo/wfm/WFM/client/{settings.name} , or give the --name of "
        "that site.",
    )


def _opened(settings: SiteSettings, clock: Clock, membership: Membership) -> SiteIdentity:
    client, authority = membership.credentials(), membership.authority()
    joined = membership.joined
    assert joined is not None
    if authority is None or joined.site != settings.name:
        raise Refused(
            f"The identity in {settings.data / 'identity'} belongs to {joined.name}, not to site {settings.name}.",
            hint="Give each site a data folder of its own with --data.",
        )
    server = Credentials(settings.data / "identity" / "server", domain=client.domain, wfm=client.wfm)
    identity = SiteIdentity(settings, clock, membership, client, server, authority)
    try:
        identity.renew_server()
    except HomeportError as error:
        if not server.exists:
            raise
        # The intermediate expired while central was unreachable for very long; its renewal fixes this.
        log.warning("site certificate renewal pending", why=str(error))
    return identity


def _ticket(settings: SiteSettings) -> JoinCommand | None:
    if settings.pin is None:
        if settings.join_token is not None:
            raise Refused(
                "A join token is only sent to a server that is known by its pin.",
                hint="Copy the whole line of  homeport sites join-command , with --pin.",
            )
        return None
    if settings.central_url is None:
        raise Refused("Joining needs the address of central.", hint="Give it with --central https://HOST:PORT")
    return JoinCommand(url=settings.central_url, pin=settings.pin, token=settings.join_token)


def _is_concerned(settings: SiteSettings) -> bool:
    return settings.pin is not None or (settings.data / "identity" / "membership.json").exists()


def _server_csr(settings: SiteSettings) -> bytes:
    """Also creates the key, because its pin is sent to central with the first request."""
    return Credentials(settings.data / "identity" / "server", domain="-", wfm="-").request("site")


def _reach(settings: SiteSettings, server_csr: bytes) -> dict[str, str] | None:
    if not server_csr or settings.http_address is None or settings.grpc_address is None:
        return None
    http_host, http_port = settings.http_address
    grpc_host, _, grpc_port = settings.grpc_address.rpartition(":")
    return {
        "nodes": f"{_advertised(settings, grpc_host)}:{grpc_port}",
        "api": f"https://{_advertised(settings, http_host)}:{http_port}",
        "pin": pin_of(csr_spki(server_csr)),
    }


def _advertised(settings: SiteSettings, host: str) -> str:
    """The address for others: a wildcard address cannot be dialled."""
    if settings.advertise is not None:
        return settings.advertise
    name = host.strip("[]")
    if name in {"", "0.0.0.0", "::"}:
        return socket.gethostname()
    return f"[{name}]" if ":" in name else name
