"""Places where a test may pull the plug: before and after every durable write, and between the steps on a node.

`HOMEPORT_FAILPOINT=name` or `name:nth` makes the process kill itself, as by `kill -9`, when it passes that place for
the nth time (ADR 0020). The settings of a role read the variable once; unset, passing costs one comparison.

`Point` is the whole list. A test walks it, so that a place without a proof of what happens there cannot be added.
"""

import os
import signal
import threading
from enum import StrEnum
from typing import Final

from homeport.errors import InvalidInput, Problem

VARIABLE: Final = "HOMEPORT_FAILPOINT"


class Point(StrEnum):
    STORE_BEFORE_COMMIT = "store-before-commit"
    """Works of several callers are in the transaction; nobody was answered."""
    STORE_AFTER_COMMIT = "store-after-commit"
    """All of it is durable; nobody was answered."""
    GIT_BEFORE_COMMIT = "git-before-commit"
    """A change of desired state was decided; no object of it exists."""
    GIT_BEFORE_PUSH = "git-before-push"
    """The commit is in our clone, and the remote knows nothing."""
    GIT_AFTER_PUSH = "git-after-push"
    """The remote has it; nobody here has taken note."""
    FILE_BEFORE_REPLACE = "file-before-replace"
    """A key, certificate or membership is whole in its draft, and the old file still in place."""
    FILE_AFTER_REPLACE = "file-after-replace"
    JOURNAL_BEFORE_COMMIT = "journal-before-commit"
    JOURNAL_AFTER_COMMIT = "journal-after-commit"
    """An order is durable and nothing done, or a result is durable and not sent."""
    COMPONENT_BEFORE_PLACE = "component-before-place"
    """A fetched component is unpacked beside its place."""
    COMPONENT_AFTER_PLACE = "component-after-place"
    RUNTIME_AFTER_PULL = "runtime-after-pull"
    """Everything was fetched; what runs is untouched."""
    RUNTIME_AFTER_STOP = "runtime-after-stop"
    """The old release is gone, the new one not made."""
    RUNTIME_AFTER_CREATE = "runtime-after-create"
    """The new release was made; nobody has looked whether it still runs."""
    RUNTIME_BEFORE_HEALTH = "runtime-before-health"
    """It runs; it was not asked whether it is well."""
    RUNTIME_AFTER_REMOVE = "runtime-after-remove"
    """A component is gone; the journal says that it should go."""


class _Trap:
    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self._point, self._left = _parsed(wanted)
        self._lock = threading.Lock()

    def passed(self, point: Point) -> None:
        if point is not self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


_trap: _Trap | None = None


def arm(wanted: str | None) -> None:
    """Called by each role at its start with what its settings say; None, as always outside of tests, is no trap.

    Arming twice is arming once: the roles of one process count together. Raises InvalidInput."""
    global _trap  # noqa: PLW0603 - a process dies as a whole
    if _trap is None or wanted != _trap.wanted:
        _trap = None if not wanted else _Trap(wanted)


def passing(point: Point) -> None:
    if _trap is not None:
        _trap.passed(point)


def _parsed(wanted: str) -> tuple[Point, int]:
    name, _, nth = wanted.partition(":")
    if name not in set(Point) or not (nth or "1").isascii() or not (nth or "1").isdigit() or int(nth or 1) < 1:
        raise InvalidInput(
            problems=[Problem(VARIABLE, f"{wanted!r} names no failpoint")],
            hint=f"Unset it, or use NAME or NAME:NTH with one of {', '.join(Point)}.",
        )
    return Point(name), int(nth or 1)
