"""Files that must be whole, and keys that nobody else may read.

Every write goes to a draft beside the file, to the disk, and then into place: after a crash there is the old file or
the new one.
"""

import os
import stat
from pathlib import Path
from typing import Final

from homeport.errors import InvalidInput, Refused, TransientError
from homeport.failpoints import Point, passing

PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
SIZE_MAX: Final = 1 << 20


def make_folder(folder: Path) -> None:
    """A new folder is for its owner alone; one that is there already stays as its owner made it."""
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
        os.fchmod(descriptor, mode)  # the mask of the process may have taken more away
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
    """Refuses a key that others could have read: it may be known already, and using it would hide that."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise _unreadable(path, error) from error
    if mode & 0o077:
        raise Refused(
            f"The key {path} is open to other users of this machine (mode {mode:04o}).",
            hint=f"If nobody has read it, close it with: chmod 600 {path}",
        )
    return read_needed(path)


def read_needed(path: Path) -> bytes:
    """A file that must be there."""
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
    return InvalidInput(f"{path} cannot be read: {error.strerror}.", hint="Look at who owns it.")
