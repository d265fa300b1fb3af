"""A machine's membership: where it joined, with which key, and how it renews its certificate.

Everything is below one folder: `key.pem`, `chain.pem` and `bundle.json`, and `membership.json`, which has the address
for renewals and the pin of that server. So a machine that has joined needs neither token nor pin again, and one that
was disconnected for longer than its certificate is valid recovers by itself, because its key identifies it.
Calls block; they run in a thread.
"""

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity.files import PUBLIC, make_folder, read_bounded, write_whole
from homeport.adapters.identity.keys import csr_spki, load_or_create_key, make_csr
from homeport.adapters.identity.pins import pinned_context
from homeport.adapters.identity.site_authority import (
    SiteAuthority,
    install_site_authority,
    open_site_authority,
    request_site_authority,
)
from homeport.adapters.identity.tls import Credentials
from homeport.adapters.link.enrolment_http import Distrusted, EnrolmentHttp
from homeport.core.identity.joining import reach_mark
from homeport.core.model.identity import TrustBundle
from homeport.errors import InvalidInput, PeerUnavailable
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MembershipFile:
    """The content of `membership.json`."""

    url: str
    pin: str
    name: str
    domain: str
    wfm: str
    site: str | None
    """Of a site: its own name; it holds an intermediate for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCommand:
    """The arguments of the join command."""

    url: str
    pin: str
    token: str | None = None
    """None: an administrator has to approve the request."""


class Membership:
    def __init__(self, folder: Path, *, reach: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self.reach = reach
        self.joined = _read(folder)

    @property
    def is_member(self) -> bool:
        return self.joined is not None and self.credentials().exists

    @property
    def key(self) -> str:
        """The key fingerprint that an administrator compares before approving."""
        return f"sha256:{csr_spki(self._csr('key'))}"

    def credentials(self) -> Credentials:
        joined = self._known
        return Credentials(self._folder, domain=joined.domain, wfm=joined.wfm)

    def authority(self) -> SiteAuthority | None:
        joined = self._known
        if joined.site is None:
            return None
        return open_site_authority(self._authority_folder, domain=joined.domain, site=joined.site)

    def join(self, ticket: JoinCommand, *, name: str, site: str | None = None) -> bool:
        """Sends one request and installs the result; False while approval is pending. Only a site passes `site`."""
        make_folder(self._folder)
        body: dict[str, Any] = {"name": name, "csr": self._csr(name).decode()}
        if site is not None:
            body["authority_csr"] = request_site_authority(self._authority_folder, site=site).decode()
        if ticket.token is not None:
            body["token"] = ticket.token
        answer = _http(ticket.url, ticket.pin).post("/api/v1/enrolments", {**body, **self._reachable()})
        if answer.get("standing") != "accepted":
            return False
        joined = MembershipFile(ticket.url, ticket.pin, name, _text(answer, "domain"), _text(answer, "wfm"), site)
        self._take(joined, answer)
        write_whole(self._folder / "membership.json", json.dumps(asdict(joined), indent=1).encode(), mode=PUBLIC)
        self.joined = joined
        return True

    def renew(self, credentials: Credentials) -> None:
        """By proof of the key, so that it also works with an expired certificate."""
        name = self._known.name if self.reach is None else reach_mark(self.reach)
        csr = credentials.request(name).decode()
        answer = self._renewed(credentials, credentials.spiffe_id, csr)
        credentials.install(_text(answer, "chain").encode(), _bundle(answer, credentials.domain))

    def renew_authority(self, credentials: Credentials) -> SiteAuthority:
        joined = self._known
        assert joined.site is not None, "only a site has an intermediate"
        csr = request_site_authority(self._authority_folder, site=joined.site).decode()
        spiffe_id = f"spiffe://{joined.domain}/homeport/site/{joined.site}"
        answer = self._renewed(credentials, spiffe_id, csr)
        chain, bundle = _text(answer, "chain").encode(), _bundle(answer, joined.domain)
        return install_site_authority(
            self._authority_folder, domain=joined.domain, site=joined.site, chain=chain, bundle=bundle
        )

    def refresh_bundle(self, credentials: Credentials) -> bool:
        """True when the bundle has changed. A failed or invalid response changes nothing."""
        answer = self._call(credentials, lambda http: http.get("/.well-known/spiffe/bundle.json"))
        bundle = bundles.decode(json.dumps(answer).encode(), credentials.domain)
        if bundle == credentials.bundle:
            return False
        credentials.install_bundle(bundle)
        return True

    def _renewed(self, credentials: Credentials, spiffe_id: str, csr: str) -> dict[str, Any]:
        body = {"spiffe_id": spiffe_id, "csr": csr, **self._reachable()}
        return self._call(credentials, lambda http: http.post("/api/v1/identity/renew", body))

    def _call(self, credentials: Credentials, ask: Callable[[EnrolmentHttp], dict[str, Any]]) -> dict[str, Any]:
        """The server is authenticated by the bundle or, where a rotation has made that obsolete, by the pin."""
        joined = self._known

        def check(ssl_object: ssl.SSLObject) -> None:
            credentials.verify_server(ssl_object, datetime.now(UTC))

        try:
            return ask(EnrolmentHttp(joined.url, credentials.client_context(present=False), check))
        except Distrusted:
            return ask(_http(joined.url, joined.pin))

    def _take(self, joined: MembershipFile, answer: Mapping[str, Any]) -> None:
        bundle = _bundle(answer, joined.domain)
        if joined.site is not None:
            chain = _text(answer, "authority_chain").encode()
            install_site_authority(
                self._authority_folder, domain=joined.domain, site=joined.site, chain=chain, bundle=bundle
            )
        credentials = Credentials(self._folder, domain=joined.domain, wfm=joined.wfm)
        credentials.install(_text(answer, "chain").encode(), bundle)

    def _reachable(self) -> dict[str, Any]:
        return {} if self.reach is None else {"reach": dict(self.reach)}

    def _csr(self, name: str) -> bytes:
        return make_csr(load_or_create_key(self._folder / "key.pem"), name)

    @property
    def _authority_folder(self) -> Path:
        return self._folder / "authority"

    @property
    def _known(self) -> MembershipFile:
        assert self.joined is not None, "this machine has not joined"
        return self.joined


def _http(url: str, pin: str) -> EnrolmentHttp:
    context, check = pinned_context(pin)
    return EnrolmentHttp(url, context, check)


def _read(folder: Path) -> MembershipFile | None:
    path = folder / "membership.json"
    try:
        return MembershipFile(**json.loads(read_bounded(path)))
    except FileNotFoundError:
        return None
    except (RecursionError, ValueError, TypeError) as error:
        raise InvalidInput(
            f"{path} cannot be read.", hint=f"Restore it, or remove {folder} and join this machine again."
        ) from error


def _text(answer: Mapping[str, Any], field: str) -> str:
    value = answer.get(field)
    if not isinstance(value, str):
        raise PeerUnavailable(f"The answer to the request to join has no {field}.")
    return value


def _bundle(answer: Mapping[str, Any], domain: str) -> TrustBundle:
    return bundles.decode(json.dumps(answer.get("bundle")).encode(), domain)
