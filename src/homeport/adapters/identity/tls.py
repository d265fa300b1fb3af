"""A machine's own identity in a folder, and TLS 1.3 with it.

The folder holds the files we wrote (`key.pem`, `chain.pem`, `bundle.json`) or externally managed ones
(`svid-key.pem`, `svid-cert.pem`, `svid-ca.pem`, as SPIRE's helper writes and renews them).

OpenSSL verifies signatures and constraints, up to an anchor; validity periods, names and everything else are left to
`core.identity.rules`, which can say which peer was refused and why, and tolerates clock skew. So a context of ours is
never enough by itself: both ends of a connection call `verify` (or `verify_server`) before the first byte, and
`recheck` at every request, because anchors and certificates change while a connection lives.
"""

import asyncio
import ssl
import threading
from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final, Literal
from weakref import WeakKeyDictionary

from homeport.adapters.identity.certificates import view
from homeport.adapters.identity.contexts import add_anchors, bare_client, bare_server, show_chain, verified_chain
from homeport.adapters.identity.keys import load_or_create_key, make_csr
from homeport.adapters.identity.pins import pin_of, pinned_context
from homeport.adapters.identity.svid import Svid, install, is_there, load
from homeport.core.identity import rules, spiffe
from homeport.core.model.identity import CertificateView, Peer, TrustBundle
from homeport.errors import InvalidInput, NotFound, Refused

__all__ = ["ClientCertificates", "Credentials", "pinned_context"]

ClientCertificates = Literal["none", "optional", "required"]

_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Credentials:
    """Key, chain and trust bundle of one machine, and the TLS contexts that use them.

    Contexts are updated in place when the chain or the bundle is renewed: open connections stay, new handshakes use
    the new one. A context cannot drop an anchor; `verify` and `recheck` do. Renewal may run in its own thread:
    OpenSSL does not allow a handshake to begin while a context changes, so a context that was created on an event
    loop is changed on that loop.
    """

    def __init__(
        self,
        folder: Path,
        *,
        domain: str,
        wfm: str,
        expected: str | None = None,
        skew_seconds: float = rules.SKEW_SECONDS,
    ) -> None:
        """`expected` is the SPIFFE ID that the folder must hold, also after an external tool replaces the files."""
        self.folder = folder
        self._expected = expected
        self.domain = domain
        self.wfm = wfm
        self._skew_seconds = skew_seconds
        self._svid: Svid | None = None
        self._lock = threading.Lock()
        self._presenting: WeakKeyDictionary[ssl.SSLContext, asyncio.AbstractEventLoop | None] = WeakKeyDictionary()
        self._trusting_bundle: WeakKeyDictionary[ssl.SSLContext, None] = WeakKeyDictionary()
        self._own_anchors: WeakKeyDictionary[ssl.SSLContext, tuple[CertificateView, ...]] = WeakKeyDictionary()
        self.refresh()

    # --- what is in the folder ---

    @property
    def exists(self) -> bool:
        return self._svid is not None

    def refresh(self) -> bool:
        """Reads the folder again, for externally managed files; True when something has changed.

        Half-written or invalid files raise InvalidInput or Refused, and the previous ones stay in use.
        """
        if not is_there(self.folder):
            return False
        svid = load(self.folder, self.domain)
        if svid == self._svid:
            return False
        self._take(svid)
        return True

    def request(self, common_name: str = "") -> bytes:
        """A certificate request for this machine's key, which is created on first use."""
        key = load_or_create_key(self.folder / "key.pem")
        return make_csr(key, common_name or self.domain)

    def install(self, chain_pem: bytes, bundle: TrustBundle) -> None:
        """Installs a chain for our key, and the bundle, which replaces the previous one."""
        self._take(install(self.folder, chain_pem, bundle))

    def install_bundle(self, bundle: TrustBundle) -> None:
        self.install(self._known.chain_pem, bundle)

    @property
    def not_before(self) -> datetime:
        return self._known.leaf.not_before

    @property
    def not_after(self) -> datetime:
        return self._known.leaf.not_after

    @property
    def spki(self) -> str:
        return self._known.leaf.spki

    @property
    def pin(self) -> str:
        """The pin by which other machines authenticate this one before they have a bundle; renewals do not change
        it."""
        return pin_of(self.spki)

    @property
    def spiffe_id(self) -> str:
        return self._known.spiffe_id

    @property
    def bundle(self) -> TrustBundle:
        return self._known.bundle

    # --- contexts ---

    def server_context(
        self,
        client: ClientCertificates = "none",
        anchors: Sequence[bytes] | None = None,
        *,
        present: bool = True,
    ) -> ssl.SSLContext:
        """`anchors` (DER) are trusted for clients instead of the bundle's, as a site trusts its own intermediate.
        With `present` False the caller loads a certificate of its own."""
        context = bare_server()
        context.verify_mode = _MODES[client]
        if present:
            self._present(context)
        self._trust(context, anchors)
        return context

    def client_context(self, *, present: bool = True) -> ssl.SSLContext:
        """With `present` False no certificate is presented: for renewal after the old one expired."""
        context = bare_client()
        if present:
            self._present(context)
        self._trust(context, None)
        return context

    def trust(self, context: ssl.SSLContext, anchors: Sequence[bytes]) -> None:
        """Replaces the anchors of a context with its own ones, as after a site's intermediate was renewed."""
        add_anchors(context, anchors)
        with self._lock:
            self._own_anchors[context] = tuple(map(view, anchors))

    # --- peers ---

    def verify(self, ssl_object: ssl.SSLObject | ssl.SSLSocket, now: datetime) -> Peer | None:
        """The authenticated peer; None for a peer without a certificate. Refused says what is wrong with the
        certificate."""
        verified = verified_chain(ssl_object)
        if verified is None:
            return None
        try:
            views = [view(der) for der in verified]
        except InvalidInput as error:
            raise Refused(str(error)) from error
        own = self._own_anchors.get(ssl_object.context)
        return self._judge(views, now, self._known.anchors if own is None else own)

    def verify_server(self, ssl_object: ssl.SSLObject | ssl.SSLSocket, now: datetime) -> Peer:
        """The server, which must be the one that our own identity belongs to; its DNS name is irrelevant."""
        peer = self.verify(ssl_object, now)
        expected = spiffe.servers_for(self.spiffe_id, domain=self.domain, wfm=self.wfm)
        if peer is None or peer.spiffe_id not in expected:
            found = "without a certificate" if peer is None else peer.spiffe_id
            raise Refused(f"The server is {found}; {self.spiffe_id} answers to {' or '.join(sorted(expected))}.")
        return peer

    def recheck(self, peer: Peer, now: datetime) -> Peer:
        """Whether the peer of an open connection is still trusted: time and anchors may have changed since."""
        with self._lock:
            own = list(self._own_anchors.values())
        return self._judge(peer.chain, now, [*self._known.anchors, *chain.from_iterable(own)])

    def _judge(self, seen: Sequence[CertificateView], now: datetime, anchors: Sequence[CertificateView]) -> Peer:
        """An anchor is a key: where an authority was certified again, its newest certificate replaces the older."""
        current = {anchor.spki: anchor for anchor in anchors}
        return rules.judge(
            [*seen[:1], *(current.get(each.spki, each) for each in seen[1:])],
            domain=self.domain,
            wfm=self.wfm,
            now=now,
            anchors=frozenset(anchor.fingerprint for anchor in anchors),
            skew_seconds=self._skew_seconds,
        )

    # --- keeping up ---

    @property
    def _known(self) -> Svid:
        if self._svid is None:
            raise NotFound(f"There is no identity in {self.folder} yet.", hint="Join this machine first.")
        return self._svid

    def _present(self, context: ssl.SSLContext) -> None:
        _load_chain(context, self._known)
        with self._lock:
            self._presenting[context] = _running_loop()

    def _trust(self, context: ssl.SSLContext, anchors: Sequence[bytes] | None) -> None:
        if anchors is not None:
            self.trust(context, anchors)
            return
        add_anchors(context, self._known.bundle.anchors)
        with self._lock:
            self._trusting_bundle[context] = None

    def _take(self, svid: Svid) -> None:
        if self._expected is not None and svid.spiffe_id != self._expected:
            raise Refused(
                f"The certificate in {self.folder} is for {svid.spiffe_id}, but {self._expected} is required.",
                hint="Have the authority that writes these files issue that SPIFFE ID.",
            )
        with self._lock:
            presenting, trusting = list(self._presenting.items()), list(self._trusting_bundle)
        if self._svid is not None and presenting and _family(svid) != _family(self._svid):
            raise Refused(
                f"The key in {self.folder} has another type than before.", hint="Restart to use the new one."
            )
        _load_chain(bare_server(), svid)  # so that nothing can fail on the loops below
        for context, loop in presenting:
            if loop is None or loop is _running_loop() or loop.is_closed():
                _load_chain(context, svid)
            else:
                loop.call_soon_threadsafe(_load_chain, context, svid)
        for context in trusting:
            add_anchors(context, svid.bundle.anchors)
        self._svid = svid


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _load_chain(context: ssl.SSLContext, svid: Svid) -> None:
    try:
        show_chain(context, svid.chain_pem, svid.key_pem)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"The certificate in {svid.folder} cannot be used: {error}.") from error


def _family(svid: Svid) -> str:
    """OpenSSL keeps one certificate per key family, and would present the old one in addition to the new."""
    return svid.leaf.key_kind.partition("-")[0]
