"""Central's identity: the authority of its trust domain, and its own certificate from it; or, with `svid_folder`, the
certificate of an external authority.

The key of our own certificate stays the same at every renewal, so its pin stays valid.
"""

import socket
import ssl
from collections.abc import Callable

from homeport.adapters.identity.authority import FileAuthority, open_authority
from homeport.adapters.identity.external_svid import OutsideAuthority, open_outside, refuse
from homeport.adapters.identity.files import turn_in_folder
from homeport.adapters.identity.https_certificates import ServerTls
from homeport.adapters.identity.tls import Credentials
from homeport.central.settings import CentralSettings
from homeport.core.identity.renewal import is_due
from homeport.core.identity.spiffe import SERVER_NAME, central_id
from homeport.core.model.identity import Peer
from homeport.core.values.addresses import is_loopback
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Clock

log = get_log("homeport.central")


@dataclass(frozen=True, slots=True)
class CentralIdentity:
    authority: FileAuthority | OutsideAuthority
    credentials: Credentials
    settings: CentralSettings
    clock: Clock

    @property
    def is_outside(self) -> bool:
        return isinstance(self.authority, OutsideAuthority)

    @property
    def own_authority(self) -> FileAuthority:
        """Refused with an external authority."""
        if isinstance(self.authority, OutsideAuthority):
            refuse(self.credentials)
        return self.authority

    def keep_up(self, *, at_once: bool = False) -> None:
        """Renews central's certificate when due, and loads a bundle that was changed here or by another replica.
        `at_once` is for a new root that has begun to sign."""
        if isinstance(self.authority, OutsideAuthority):
            return
        with turn_in_folder(self.settings.keys_folder):
            at_once |= self.authority.refresh()
            self._renew(at_once=at_once)

    def rotate(self, step: Callable[[FileAuthority], object]) -> None:
        """One step of a rotation, from the last step made by any replica."""
        authority = self.own_authority
        with turn_in_folder(self.settings.keys_folder):
            authority.refresh()
            step(authority)
            self._renew(at_once=True)

    def _renew(self, *, at_once: bool) -> None:
        now, own = self.clock.now(), self.credentials
        bundle = self.authority.bundle()
        is_fresh = own.exists and not is_due(own.not_before, own.not_after, now)
        if is_fresh and own.bundle == bundle and not at_once:
            return
        issued = self.authority.issue(
            own.request(),
            spiffe_id=central_id(self.settings.trust_domain, self.settings.wfm_id),
            dns_names=_names(self.settings),
            lifetime_seconds=self.settings.svid_seconds,
            now=now,
        )
        own.install(issued.chain, bundle)
        log.info("central certificate renewed", until=issued.not_after.isoformat(), pin=own.pin)

    def server_tls(self) -> ServerTls:
        """TLS 1.3 for users and machines: a machine presents a certificate, a user does not."""
        return ServerTls(self.credentials, self.settings.tls_files, client="optional")

    @property
    def pin(self) -> str:
        """The key of the certificate that joining machines see."""
        return self.credentials.pin

    def verify(self, ssl_object: ssl.SSLObject) -> Peer | None:
        return self.credentials.verify(ssl_object, self.clock.now())


def open_identity(settings: CentralSettings, clock: Clock) -> CentralIdentity:
    """Opens both, or creates them at the first start."""
    folder, own_id = settings.keys_folder, central_id(settings.trust_domain, settings.wfm_id)
    if settings.svid_folder is not None:
        outside = open_outside(
            settings.svid_folder, domain=settings.trust_domain, wfm=settings.wfm_id, expected=own_id
        )
        return CentralIdentity(OutsideAuthority(outside), outside, settings, clock)
    authority = open_authority(
        folder / "authority", domain=settings.trust_domain, refresh_hint_seconds=settings.bundle_refresh_seconds
    )
    credentials = Credentials(folder / "central", domain=settings.trust_domain, wfm=settings.wfm_id)
    identity = CentralIdentity(authority, credentials, settings, clock)
    identity._renew(at_once=False)  # the caller holds the folder's lock
    return identity


def _names(settings: CentralSettings) -> list[str]:
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname(), SERVER_NAME}
    host = settings.http_address[0] if settings.http_address else ""
    if host and not is_loopback(host) and host not in {"0.0.0.0", "::"}:
        names.add(host)
    names.update(settings.allowed_hosts)
    return sorted(name for name in names if name)
