"""A minimal binding to Linux's inotify: wait until something in a folder changes."""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_MASK: Final = 0x08 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""A file was written, renamed into the folder, created or deleted; the folder was deleted or moved."""


@contextmanager
def changes_in(folders: Sequence[Path]) -> Iterator[int | None]:
    """A descriptor that becomes readable when an entry of these folders changes; None where inotify is not available:
    on another system, for a missing folder, or when the machine has no watches left."""
    descriptor = _open(folders) if sys.platform == "linux" and folders else None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(folders: Sequence[Path]) -> int | None:
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = int(library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        return None
    for folder in folders:
        if library.inotify_add_watch(descriptor, os.fsencode(folder), _MASK) < 0:
            os.close(descriptor)
            _refuse_unknown(ctypes.get_errno())
            return None
    return descriptor


def _refuse_unknown(code: int) -> None:
    """For expected errors the caller falls back to polling; anything else is our bug."""
    known = (errno.ENOENT, errno.ENOSPC, errno.EACCES, errno.ENOTDIR, errno.EMFILE, errno.ENOMEM)
    assert code in known, f"inotify_add_watch: {os.strerror(code)}"
