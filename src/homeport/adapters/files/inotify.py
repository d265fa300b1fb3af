"""The kernel's notifications of file changes (inotify(7)), which the standard library does not have."""

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

MODIFY: Final = 0x002
CLOSE_WRITE: Final = 0x008
MOVED_FROM: Final = 0x040
MOVED_TO: Final = 0x080
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
OVERFLOW: Final = 0x4000


def open_instance() -> int:
    """A file that can be read when something has changed. Raises OSError, and AttributeError on another system."""
    file: int = _system().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if file < 0:
        raise _error()
    return file


def add(file: int, folder: Path, mask: int) -> int:
    """The number of the watch: that of the folder's first, when it has one. Raises OSError."""
    number: int = _system().inotify_add_watch(file, os.fsencode(folder), mask)
    if number < 0:
        raise _error()
    return number


def remove(file: int, number: int) -> None:
    """Also of a folder that is gone."""
    _system().inotify_rm_watch(file, number)


@cache
def _system() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
