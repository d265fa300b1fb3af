"""Central's own authority: it signs with a root whose key is in one of central's folders.

Its state is one small file that says which roots are trusted and which one signs; a rotation resumes where it was
when the process ended:

    steady --begin_rotation--> announced --switch--> switched --finish_rotation--> steady
              both in the bundle,            the new signs,           the old is dropped
              the old signs                  both in the bundle       and its key is deleted
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from homeport.adapters.identity import bundle as bundles
from homeport.adapters.identity import roots
from homeport.adapters.identity.certificates import sign_intermediate, to_der, to_pem
from homeport.adapters.identity.files import make_folder
from homeport.adapters.identity.keys import csr_key
from homeport.adapters.identity.roots import RotationPhase, RotationState
from homeport.adapters.identity.signing import check_alive, issue_leaf, lifetime_of
from homeport.adapters.identity.site_authority import (
    SiteAuthority,
    install_site_authority,
    open_site_authority,
    request_site_authority,
)
from homeport.core.identity import spiffe
from homeport.core.model.identity import Issued, TrustBundle
from homeport.errors import Refused

__all__ = [
    "FileAuthority",
    "RotationPhase",
    "SiteAuthority",
    "install_site_authority",
    "open_authority",
    "open_site_authority",
    "request_site_authority",
]

ROOT_LIFETIME_SECONDS: Final = 10 * 365 * 86400.0
"""Ten years: a root is replaced by rotation, not by its expiry."""


def open_authority(
    folder: Path,
    *,
    domain: str,
    refresh_hint_seconds: int = bundles.REFRESH_HINT_SECONDS,
    root_lifetime_seconds: float = ROOT_LIFETIME_SECONDS,
    now: datetime | None = None,
) -> "FileAuthority":
    """Opens central's authority, and creates it on first use."""
    spiffe.domain_id(domain)
    make_folder(folder)
    lifetime = timedelta(seconds=root_lifetime_seconds)
    moment = now or datetime.now(UTC)
    state = roots.read_state(folder)
    if state is None:
        roots.make_root(folder, domain, 1, lifetime, moment)
        state = RotationState(domain, 1, (1,), 1, moment.isoformat())
        roots.write_state(folder, state)
    if state.domain != domain:
        raise Refused(
            f"The authority in {folder} belongs to the trust domain {state.domain}, not to {domain}.",
            hint="A trust domain never changes; use the old one, or another folder for a new authority.",
        )
    return FileAuthority(folder, state, refresh_hint_seconds=refresh_hint_seconds, root_lifetime=lifetime)


class FileAuthority:
    """Implements `ports.Authority` with roots in a folder. May be called from any thread."""

    def __init__(
        self, folder: Path, state: RotationState, *, refresh_hint_seconds: int, root_lifetime: timedelta
    ) -> None:
        self.domain = state.domain
        self._folder = folder
        self._refresh_hint_seconds = refresh_hint_seconds
        self._root_lifetime = root_lifetime
        self._lock = threading.Lock()
        self._take(state)

    @property
    def phase(self) -> RotationPhase:
        return self._state.phase

    @property
    def phase_since(self) -> datetime:
        return datetime.fromisoformat(self._state.since)

    @property
    def root_not_after(self) -> datetime:
        return self._signer.certificate.not_valid_after_utc

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        self._check_name(spiffe_id)
        return issue_leaf(
            self._signer,
            (),
            csr,
            spiffe_id=spiffe_id,
            dns_names=dns_names,
            lifetime_seconds=lifetime_seconds,
            now=now,
        )

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued:
        segments = self._check_name(spiffe_id)
        if len(segments) != 3 or segments[:2] != ("homeport", "site"):
            raise Refused(f"{spiffe_id} is not the authority of a site.")
        check_alive(self._signer, now)
        certificate = sign_intermediate(
            csr_key(csr),
            self._signer,
            common_name=f"site {segments[2]}",
            uri=spiffe_id,
            lifetime=lifetime_of(lifetime_seconds),
            now=now,
        )
        return Issued(to_pem(certificate), certificate.not_valid_after_utc)

    def bundle(self) -> TrustBundle:
        return self._bundle

    def refresh(self) -> bool:
        """Loads changes that another process made in the folder; True when there were any. The caller holds the
        folder's lock."""
        with self._lock:
            found = roots.read_state(self._folder)
            if found is None or found == self._state:
                return False
            self._take(found)
            return True

    def begin_rotation(self, now: datetime | None = None) -> RotationPhase:
        """Announces the next root. Has no effect while a rotation is under way."""
        with self._lock:
            if self.phase is RotationPhase.STEADY:
                number, moment = self._state.roots[-1] + 1, now or datetime.now(UTC)
                roots.make_root(self._folder, self.domain, number, self._root_lifetime, moment)
                both = (*self._state.roots, number)
                self._change(replace(self._state, roots=both, sequence=self._state.sequence + 1), moment)
            return self.phase

    def switch(self, now: datetime | None = None) -> RotationPhase:
        """Signs with the announced root from now on. Idempotent."""
        with self._lock:
            if self.phase is RotationPhase.STEADY:
                raise Refused("No rotation of the authority is under way.", hint="Begin one first.")
            if self.phase is RotationPhase.ANNOUNCED:
                self._change(replace(self._state, signing=self._state.roots[-1]), now)
            return self.phase

    def finish_rotation(self, now: datetime | None = None) -> RotationPhase:
        """Drops the old root: certificates signed by it are refused from now on. Without a rotation it changes
        nothing."""
        with self._lock:
            if self.phase is RotationPhase.ANNOUNCED:
                raise Refused(
                    "The rotation cannot be finished: the old root still signs.", hint="Switch to the new root first."
                )
            if self.phase is RotationPhase.SWITCHED:
                newest = self._state.roots[-1:]
                self._change(replace(self._state, roots=newest, sequence=self._state.sequence + 1), now)
            return self.phase

    def _check_name(self, spiffe_id: str) -> tuple[str, ...]:
        domain, segments = spiffe.split(spiffe_id)
        if domain != self.domain or not segments:
            raise Refused(f"This authority signs for machines of {self.domain} only, not for {spiffe_id}.")
        return segments

    def _change(self, state: RotationState, now: datetime | None) -> None:
        state = replace(state, since=(now or datetime.now(UTC)).isoformat())
        roots.write_state(self._folder, state)
        self._take(state)

    def _take(self, state: RotationState) -> None:
        """Loads the roots that the state names, and deletes the others. The bundle changes in one assignment."""
        anchors = tuple(to_der(roots.load_certificate(self._folder, number)) for number in state.roots)
        self._signer = roots.load_signer(self._folder, state.signing)
        self._bundle = TrustBundle(self.domain, state.sequence, self._refresh_hint_seconds, anchors)
        self._state = state
        roots.forget_others(self._folder, state)
