"""Failpoints: places where a test may kill the process: around every durable write, and between the steps on a node.

`HOMEPORT_FAILPOINT=name` or `name:nth` makes the process kill itself, as by `kill -9`, when it passes that failpoint
for the nth time (ADR 0020); `name:nth:term` makes it send itself a SIGTERM there and continue. The settings of a role
read the variable once; unset, passing costs one comparison.

`Point` is the complete list. A test walks it, so that no failpoint can be added without a test.
"""

import os
import signal
import threading
from enum import StrEnum
from typing import Final

from homeport.errors import InvalidInput, Problem

TERM: Final = "term"
VARIABLE: Final = "HOMEPORT_FAILPOINT"


class Point(StrEnum):
    STORE_BEFORE_COMMIT = "store-before-commit"
    """Work of several callers is in the transaction; none was answered."""
    STORE_AFTER_COMMIT = "store-after-commit"
    """All of it is durable; no caller was answered."""
    LEASE_TAKEN = "lease-taken"
    """This replica of central has taken a lease and not begun the work; the other replicas wait."""
    GIT_BEFORE_COMMIT = "git-before-commit"
    """A change of desired state was decided; no Git object of it exists."""
    GIT_BEFORE_PUSH = "git-before-push"
    """The commit is in our clone, and the remote knows nothing."""
    GIT_AFTER_PUSH = "git-after-push"
    """The remote has it; nothing is recorded here."""
    FILE_BEFORE_REPLACE = "file-before-replace"
    """A key, certificate or membership is written to a temporary file, and the old file still in place."""
    FILE_AFTER_REPLACE = "file-after-replace"
    JOURNAL_BEFORE_COMMIT = "journal-before-commit"
    JOURNAL_AFTER_COMMIT = "journal-after-commit"
    """An order is durable and nothing done, or a result is durable and not sent."""
    COMPONENT_BEFORE_PLACE = "component-before-place"
    """A pulled component is unpacked next to its destination."""
    COMPONENT_AFTER_PLACE = "component-after-place"
    RUNTIME_AFTER_PULL = "runtime-after-pull"
    """Everything was pulled; what runs is untouched."""
    RUNTIME_AFTER_STOP = "runtime-after-stop"
    """The old release is gone, the new one not created."""
    RUNTIME_AFTER_CREATE = "runtime-after-create"
    """The new release was created; whether it still runs was not checked."""
    RUNTIME_BEFORE_HEALTH = "runtime-before-health"
    """It runs; its health was not checked."""
    RUNTIME_AFTER_REMOVE = "runtime-after-remove"
    """A component is removed; the journal still has the order to remove it."""
    JOB_AFTER_START = "job-after-start"
    """A job runs; it was not reported to its site."""
    JOB_AFTER_END = "job-after-end"
    """A job has ended; its result is not in the journal."""
    TASK_BEFORE_ADMISSION = "task-before-admission"
    """An inference task has its place in the queue; nothing of it is durable."""
    TASK_AFTER_ADMISSION = "task-after-admission"
    """It is durable; its client has no answer."""
    TASK_AFTER_START = "task-after-start"
    """It is known to have started; its client has seen no token."""
    TASK_BEFORE_END = "task-before-end"
    """Its stream has ended; how is not durable."""
    PIPELINE_BEFORE_STORE = "pipeline-before-store"
    """What follows in a run was decided, after a step has ended; nothing of it is stored."""
    PIPELINE_AFTER_STORE = "pipeline-after-store"
    """It is stored; nothing of it has begun."""
    PIPELINE_STEP_BEGUN = "pipeline-step-begun"
    """A step's work has begun elsewhere: its job is submitted, its request sent. Nothing more is known of it here."""


class _Trap:
    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self._point, self._left, self._signal = _parsed(wanted)
        self._lock = threading.Lock()

    def passed(self, point: Point) -> None:
        if point is not self._point:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)


_trap: _Trap | None = None


def arm(wanted: str | None) -> None:
    """Called by each role at start with its setting; None, as always outside of tests, arms nothing.

    Arming twice is arming once: the roles of one process count together. Raises InvalidInput."""
    global _trap  # noqa: PLW0603 - one process, one failpoint
    if _trap is None or wanted != _trap.wanted:
        _trap = None if not wanted else _Trap(wanted)


def passing(point: Point) -> None:
    if _trap is not None:
        _trap.passed(point)


def _parsed(wanted: str) -> tuple[Point, int, signal.Signals]:
    name, _, rest = wanted.partition(":")
    nth, _, how = rest.partition(":")
    is_count = not nth or (nth.isascii() and nth.isdigit() and len(nth) < 10 and int(nth) > 0)
    if name not in set(Point) or not is_count or how not in ("", TERM):
        raise InvalidInput(
            problems=[Problem(VARIABLE, f"{wanted!r} is not a failpoint.")],
            hint=f"Unset it, or use NAME, NAME:NTH or NAME:NTH:{TERM} with one of {', '.join(Point)}.",
        )
    return Point(name), int(nth or 1), signal.SIGTERM if how else signal.SIGKILL
