"""An externally managed identity: written and renewed by SPIRE's helper, a configuration tool, or an administrator.

The folder holds `svid-cert.pem`, `svid-key.pem` and `svid-ca.pem`. They are checked every second and loaded when all
three match; until then, and whenever they are invalid, the previous ones stay in use. We never write there.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import anyio
import anyio.to_thread

from homeport.adapters.identity.certificates import read_chain, to_der, view
from homeport.adapters.identity.files import read_needed
from homeport.adapters.identity.svid import THEIRS, is_theirs
from homeport.adapters.identity.tls import Credentials
from homeport.core.identity import spiffe
from homeport.core.model.identity import Issued, TrustBundle
from homeport.errors import HomeportError, InvalidInput, Refused
from homeport.log import get_log

log = get_log("homeport.identity")

LOOK_SECONDS: Final = 1.0
"""How often the files are checked: three system calls, unless one of them has changed."""

HINT: Final = "Have its SVID issued by the authority outside, start it with --svid-dir, and approve it by its name."


def outside_id(folder: Path) -> str:
    """The SPIFFE ID in the folder's certificate, for a role that takes its name from it."""
    if not is_theirs(folder):
        missing = next(name for name in sorted(THEIRS) if not (folder / name).exists())
        raise InvalidInput(
            f"{folder / missing} is missing.",
            hint="The tool that fetches the identity (SPIRE's helper, for instance) has to write it first.",
        )
    path = folder / "svid-cert.pem"
    names = view(to_der(read_chain(read_needed(path), str(path))[0])).uri_sans
    if len(names) != 1:
        raise InvalidInput(f"The certificate {path} must have exactly one URI name; it has {len(names)}.")
    spiffe.split(names[0])
    return names[0]


def open_outside(folder: Path, *, domain: str, wfm: str, expected: str) -> Credentials:
    """Raises Refused for another machine's identity, InvalidInput for missing or invalid files."""
    found = outside_id(folder)
    if found != expected:
        raise Refused(
            f"The certificate in {folder} is for {found}, but {expected} is required.",
            hint="Have the authority that writes these files issue that SPIFFE ID.",
        )
    return Credentials(folder, domain=domain, wfm=wfm, expected=expected)


async def follow_files(credentials: Credentials, on_changed: Callable[[], Awaitable[None]]) -> None:
    """Reloads changed files while the role runs. Invalid files are ignored."""
    said, seen = "", _state(credentials.folder)
    while True:
        await anyio.sleep(LOOK_SECONDS)
        before, seen = seen, _state(credentials.folder)
        try:
            changed = seen != before and await anyio.to_thread.run_sync(credentials.refresh)
            wrong = said if seen == before and said else _overdue(credentials)
        except HomeportError as error:
            changed, wrong = False, str(error)
        if wrong and wrong != said:
            log.warning("external identity load failed", folder=str(credentials.folder), why=wrong)
        said = wrong
        if changed:
            until = credentials.not_after.isoformat()
            log.info("external identity loaded", identity=credentials.spiffe_id, until=until)
            await on_changed()


def _state(folder: Path) -> tuple[tuple[int, ...], ...]:
    """Changes when a file was rewritten, replaced, or made readable."""
    found: list[tuple[int, ...]] = []
    for name in THEIRS:
        try:
            status = (folder / name).stat()
        except OSError:
            found.append(())
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(found)


def _overdue(credentials: Credentials) -> str:
    """Logged once, because Homeport cannot renew it."""
    ends = credentials.not_after
    if ends > datetime.now(UTC):
        return ""
    return f"the certificate expired on {ends:%Y-%m-%d %H:%M:%S} UTC and was not replaced"


class OutsideAuthority:
    """Implements `ports.Authority` with an external authority: everything that needs a key of ours is refused."""

    def __init__(self, credentials: Credentials) -> None:
        self.domain = credentials.domain
        self._credentials = credentials

    def issue(
        self, csr: bytes, *, spiffe_id: str, dns_names: Sequence[str] = (), lifetime_seconds: float, now: datetime
    ) -> Issued:
        refuse(self._credentials)

    def issue_intermediate(self, csr: bytes, *, spiffe_id: str, lifetime_seconds: float, now: datetime) -> Issued:
        refuse(self._credentials)

    def bundle(self) -> TrustBundle:
        return self._credentials.bundle


def refuse(credentials: Credentials) -> NoReturn:
    raise Refused(f"Certificates of {credentials.domain} come from an authority outside Homeport.", hint=HINT)
