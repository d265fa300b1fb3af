"""The roots of central's authority on disk, and the file with their state.

`authority.json` is replaced atomically, and only after the keys and certificates that it names are on the disk. So a
crash leaves the previous or the next state, never one between.
"""

import json
from dataclasses import asdict
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509

from homeport.adapters.identity.certificates import Signer, read_chain, sign_root, to_pem
from homeport.adapters.identity.files import PRIVATE, PUBLIC, read_needed, sync_folder, write_whole
from homeport.adapters.identity.keys import key_pem, load_key, new_key
from homeport.adapters.identity.signing import signer_of
from homeport.core.identity import spiffe
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass


class RotationPhase(StrEnum):
    STEADY = "steady"
    ANNOUNCED = "announced"
    """The next root is in the bundle, the old one signs. Wait until every machine has fetched the bundle."""
    SWITCHED = "switched"
    """The next root signs, the old one is still trusted. Wait until the certificates it signed have been renewed."""


@dataclass(frozen=True, slots=True)
class RotationState:
    domain: str
    sequence: int
    roots: tuple[int, ...]
    """Trusted, oldest first; each is the number of a key and a certificate."""
    signing: int
    since: str
    """When this phase began, ISO 8601."""

    @property
    def phase(self) -> RotationPhase:
        if len(self.roots) == 1:
            return RotationPhase.STEADY
        return RotationPhase.SWITCHED if self.signing == self.roots[-1] else RotationPhase.ANNOUNCED


def read_state(folder: Path) -> RotationState | None:
    """None where no authority exists yet."""
    path = folder / "authority.json"
    if not path.exists():
        return None
    try:
        document = json.loads(read_needed(path))
        state = RotationState(**{**document, "roots": tuple(document["roots"])})
        datetime.fromisoformat(state.since)
        known = bool(state.roots) and len(state.roots) <= 2 and state.signing in state.roots
    except (RecursionError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"{path} cannot be read.", hint="Restore it from a backup.") from error
    if not known:
        raise InvalidInput(f"{path} names no root that signs.", hint="Restore it from a backup.")
    return state


def write_state(folder: Path, state: RotationState) -> None:
    write_whole(folder / "authority.json", json.dumps(asdict(state), indent=1).encode() + b"\n", mode=PUBLIC)


def make_root(folder: Path, domain: str, number: int, lifetime: timedelta, now: datetime) -> None:
    """Overwrites leftovers of an earlier attempt: until the state names a root, it is unused."""
    key = new_key()
    certificate = sign_root(
        key, common_name=f"{domain} root {number}", uri=spiffe.domain_id(domain), lifetime=lifetime, now=now
    )
    write_whole(_key_path(folder, number), key_pem(key), mode=PRIVATE)
    write_whole(_certificate_path(folder, number), to_pem(certificate), mode=PUBLIC)


def load_signer(folder: Path, number: int) -> Signer:
    return signer_of(load_key(_key_path(folder, number)), load_certificate(folder, number), str(folder))


def load_certificate(folder: Path, number: int) -> x509.Certificate:
    path = _certificate_path(folder, number)
    return read_chain(read_needed(path), str(path))[0]


def forget_others(folder: Path, state: RotationState) -> None:
    """Deletes roots that the state does not name: dropped ones, or leftovers."""
    kept = {path(folder, number) for number in state.roots for path in (_key_path, _certificate_path)}
    others = [path for path in folder.glob("root-*.pem") if path not in kept]
    for path in others:
        path.unlink()
    if others:
        sync_folder(folder)


def _key_path(folder: Path, number: int) -> Path:
    return folder / f"root-{number}-key.pem"


def _certificate_path(folder: Path, number: int) -> Path:
    return folder / f"root-{number}-cert.pem"
