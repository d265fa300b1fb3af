"""Who central is: the authority of its trust domain, and its own certificate from it.

The key of central's certificate stays the same at every renewal, so a pin of it stays good.
"""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog

from homeport.adapters.identity.authority import FileAuthority, open_authority
from homeport.adapters.identity.certificates import read_chain, to_der, view
from homeport.adapters.identity.pins import pin_of
from homeport.adapters.identity.tls import Credentials
from homeport.central.settings import CentralSettings
from homeport.core.addresses import is_loopback
from homeport.core.identity.renewal import is_due
from homeport.core.identity.spiffe import central_id
from homeport.core.model.identity import Peer
from homeport.errors import InvalidInput
from homeport.ports import Clock

log = structlog.get_logger("homeport.central")


@dataclass(frozen=True, slots=True)
class CentralIdentity:
    authority: FileAuthority
    credentials: Credentials
    settings: CentralSettings
    clock: Clock

    def keep_up(self, *, at_once: bool = False) -> None:
        """Renews central's certificate when it is time, and takes over a bundle that has changed. `at_once` is for a
        new root that has begun to sign."""
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
        log.info("central's own certificate renewed", until=issued.not_after.isoformat(), pin=own.pin)

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.3 for people and machines: a machine shows a certificate, a person does not."""
        given = self.settings.tls_files
        context = self.credentials.server_context("optional", present=given is None)
        if given is not None:
            load_files(context, *given)
        return context

    @property
    def pin(self) -> str:
        """The key that whoever joins will meet at our door."""
        given = self.settings.tls_files
        if given is None:
            return self.credentials.pin
        return pin_of(view(to_der(read_chain(given[0].read_bytes(), str(given[0]))[0])).spki)

    def verify(self, ssl_object: ssl.SSLObject) -> Peer | None:
        return self.credentials.verify(ssl_object, self.clock.now())


def open_identity(settings: CentralSettings, clock: Clock) -> CentralIdentity:
    """Opens both, and makes them at the first start."""
    folder = settings.data / "identity"
    authority = open_authority(
        folder / "authority", domain=settings.trust_domain, refresh_hint_seconds=settings.bundle_refresh_seconds
    )
    credentials = Credentials(folder / "central", domain=settings.trust_domain, wfm=settings.wfm_id)
    identity = CentralIdentity(authority, credentials, settings, clock)
    identity.keep_up()
    return identity


def load_files(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"The certificate {certificate} and the key {key} cannot be used: {error.strerror or error}.",
            hint="Give PEM files: the certificate with its chain, and the key that belongs to it.",
        ) from error


def _names(settings: CentralSettings) -> list[str]:
    names = {"localhost", "127.0.0.1", "::1", socket.gethostname()}
    host = settings.http_address[0] if settings.http_address else ""
    if host and not is_loopback(host) and host not in {"0.0.0.0", "::"}:
        names.add(host)
    names.update(settings.allowed_hosts)
    return sorted(name for name in names if name)
