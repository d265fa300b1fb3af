"""Local access: a role creates keys at each start and writes them to files that only its own user can read. Who can
read them could read the role's data too.

A connection over loopback proves nothing: other users can make one, containers on the host network, and clients
behind a proxy. A key is found by the port that it opens, so several roles on one machine do not mix theirs up, and it
is worthless after the role has stopped: a process that takes over the port learns nothing that is of use later.
"""

import os
import pwd
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Final

from homeport.lazy_dataclass import dataclass
from homeport.log import get_log

SECRET_BYTES: Final = 32
BELOW_DATA: Final = "local-access"
"""The folder with the same files below the data folder, for a service whose user has no home."""
_ANY: Final = frozenset({"0.0.0.0", "::"})

log = get_log("homeport.access")


class KeyKind(StrEnum):
    """Who authenticates with a key; also the suffix of its file."""

    PERSON = "person"
    MACHINE = "machine"
    """A site at central, or a node at its site, without an identity of its own."""


_PREFIXES: Final = {KeyKind.PERSON: "hpl", KeyKind.MACHINE: "hpm"}
_BEGINNINGS: Final = tuple(f"{prefix}_" for prefix in _PREFIXES.values())


@dataclass(frozen=True, slots=True)
class LocalKeys:
    person: str = field(repr=False)
    machine: str = field(repr=False)

    @classmethod
    def new(cls) -> "LocalKeys":
        made = {kind: f"{prefix}_{os.urandom(SECRET_BYTES).hex()}" for kind, prefix in _PREFIXES.items()}
        return cls(made[KeyKind.PERSON], made[KeyKind.MACHINE])

    def of(self, kind: KeyKind) -> str:
        return self.person if kind is KeyKind.PERSON else self.machine

    def kind_of(self, text: str) -> KeyKind | None:
        """Which of the keys `text` is; None for neither."""
        if not text.startswith(_BEGINNINGS):
            return None
        import hmac  # noqa: PLC0415 - it takes OpenSSL along, and the command line only reads a file

        given = text.encode()
        return next((kind for kind in KeyKind if hmac.compare_digest(self.of(kind).encode(), given)), None)


@dataclass(frozen=True, slots=True)
class FoundLocalKey:
    key: str = field(repr=False)
    address: str
    """The address to which the key may be sent."""

    def opens(self, host: str) -> bool:
        """Another user may listen on another loopback address with the same port. `localhost` counts as ours."""
        return self.address in _ANY or host in (self.address, "localhost")


def default_folder(environment: Mapping[str, str]) -> Path | None:
    """The same for a role and for the commands of the user who started it, in every kind of session. HOME is not used
    first: `sudo` keeps it, and root's files would then be in the home of another user."""
    given = environment.get("XDG_STATE_HOME")
    if given:
        return Path(given) / "homeport"
    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        home = environment.get("HOME", "")
    return Path(home) / ".local" / "state" / "homeport" if home else None


@contextmanager
def published(keys: LocalKeys, folders: Sequence[Path | None], address: str, port: int) -> Iterator[None]:
    """Publishes the keys while the body runs. A folder that cannot be written is logged: commands then have to log
    in."""
    written = [path for folder in folders if folder is not None for path in _write(keys, folder, address, port)]
    try:
        yield
    finally:
        for path, content in written:
            with suppress(OSError):
                if path.read_bytes() == content:  # not the file of another role that has the port by now
                    path.unlink()


def find(folder: Path | None, port: int, kind: KeyKind) -> FoundLocalKey | None:
    """The key of the role that listens on `port`; None where there is none, or it belongs to another user."""
    if folder is None:
        return None
    try:
        key, _, address = _path(folder, port, kind).read_text("ascii").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return FoundLocalKey(key, address.strip())


def newest(folder: Path, kind: KeyKind) -> str:
    """The newest key in a folder; "" for none. A killed role leaves its own behind."""
    paths = sorted(folder.glob(f"[0-9]*.{kind}"), key=lambda path: path.stat().st_mtime_ns)
    found = find(folder, int(paths[-1].stem), kind) if paths else None
    return "" if found is None else found.key


def _write(keys: LocalKeys, folder: Path, address: str, port: int) -> list[tuple[Path, bytes]]:
    written = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for kind in KeyKind:
            content = f"{keys.of(kind)}\n{address}\n".encode()
            path = _path(folder, port, kind)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            draft.unlink(missing_ok=True)
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            draft.replace(path)
            written.append((path, content))
    except OSError as error:
        log.warning("local key write failed", folder=str(folder), why=str(error))
    return written


def _path(folder: Path, port: int, kind: KeyKind) -> Path:
    return folder / f"{port}.{kind}"
