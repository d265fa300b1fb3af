"""Atomic file writes, and private key files.

Every write goes to a temporary file, to the disk, and is then renamed: after a crash there is the old file or the
new one.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from homeport.errors import InvalidInput, Refused, TransientError
from homeport.failpoints import Point, passing

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
SIZE_MAX: Final = 1 << 20


def make_folder(folder: Path) -> None:
    """A new folder is accessible to its owner alone; the mode of an existing one stays unchanged."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes, *, mode: int) -> None:
    try:
        _write_whole(path, content, mode)
    except OSError as error:
        raise TransientError(f"{path} cannot be written: {error.strerror}.") from error


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # the umask may have removed more
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    passing(Point.FILE_BEFORE_REPLACE)
    draft.replace(path)
    sync_folder(path.parent)
    passing(Point.FILE_AFTER_REPLACE)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(path: Path) -> bytes:
    """Refuses a key file that others can read: the key may be compromised, and using it would hide that."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise _unreadable(path, error) from error
    if mode & 0o077:
        raise Refused(
            f"The key {path} is open to other users of this machine (mode {mode:04o}).",
            hint=f"If no one else has read it, protect it with: chmod 600 {path}",
        )
    return read_needed(path)


def read_needed(path: Path) -> bytes:
    """Reads a file that must exist."""
    try:
        return read_bounded(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(SIZE_MAX + 1)
    if len(content) > SIZE_MAX:
        raise InvalidInput(f"{path} is larger than any certificate, key or bundle.")
    return content


def _unreadable(path: Path, error: OSError) -> InvalidInput:
    if isinstance(error, FileNotFoundError):
        return InvalidInput(f"{path} is missing.", hint="Restore it from a backup, or join this machine again.")
    return InvalidInput(f"{path} cannot be read: {error.strerror}.", hint="Check who owns it.")


@contextmanager
def turn_in_folder(folder: Path) -> Iterator[None]:
    """A lock: one process at a time in this folder."""
    try:
        make_folder(folder)
        handle = os.open(folder / ".turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TransientError(f"{folder} cannot be written: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
