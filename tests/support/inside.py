"""Python inside another network namespace: one thread enters it, and what it opens stays there.

A namespace belongs to a thread, not to a process, and a thread inherits it from the one that started it.
So a test can listen, dial and ask on any host without a program of its own there.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tests.support.namespaces import Host

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def enter(host: Host) -> None:
    """The calling thread alone is on that host from here on, with the threads it will start."""
    with Path(f"/run/netns/{host.namespace}").open("rb") as file:
        if _LIBC.setns(file.fileno(), CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), host.namespace)


class Inside:
    """Runs calls on a host, in a thread that never leaves it."""

    def __init__(self, host: Host) -> None:
        self._pool = ThreadPoolExecutor(1, f"on-{host.name}", enter, (host,))

    def run(self, call: Callable[[], T]) -> T:
        return self._pool.submit(call).result()

    def close(self) -> None:
        self._pool.shutdown()
