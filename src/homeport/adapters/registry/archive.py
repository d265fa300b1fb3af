"""Unpacks a component's archive, after `core.archive` has checked every entry of it."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from homeport.core.archive import ArchiveEntry, check_archive
from homeport.errors import InvalidInput

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


def extract_archive(content: bytes, target: Path) -> None:
    """Writes the content of the archive's top-level directory into `target`, so that `target/compose.yaml` exists.

    `target` must be empty or not exist yet. Raises InvalidInput or TooLarge before anything is written; when
    writing itself fails, what was written is removed again.
    """
    write_entries(target, check_archive(content))


def write_entries(target: Path, entries: Iterable[ArchiveEntry]) -> None:
    """Entries of archives that were checked."""
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise InvalidInput(f"{target} is not empty; a component's archive is never unpacked over other files.")
    try:
        # Links last: until then no path can lead out of the directory.
        for entry in sorted(entries, key=lambda entry: (entry.link is not None, entry.path)):
            _write(entry, target)
    except OSError:
        for path in target.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        raise


def _write(entry: ArchiveEntry, target: Path) -> None:
    path = target / entry.path
    if entry.is_directory:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if entry.link is not None:
        path.symlink_to(entry.link)
        return
    descriptor = os.open(path, _CREATE, 0o755 if entry.is_executable else 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(entry.content)
