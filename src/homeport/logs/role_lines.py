"""A role's own log lines, as lines of the log path: what it writes to stderr also goes to its log store.

Roles may share a process (`homeport up`): a line goes to the role whose package wrote it, else to the first of
central, site and node. Lines about the log path itself stay on stderr: one that could not be stored would cause the
next.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import anyio

from homeport.core.logs.line import LogLine, SourceKind
from homeport.log import fields_of

OWN: Final = {
    SourceKind.CENTRAL: ("homeport.central", "homeport.fleet.central"),
    SourceKind.SITE: ("homeport.site", "homeport.fleet.site"),
    SourceKind.NODE: ("homeport.node",),
}
LOG_PATH: Final = "homeport.logs"
LEVELS: Final = {"CRITICAL": "error", "ERROR": "error", "WARNING": "warning", "INFO": "info", "DEBUG": "debug"}

Put = Callable[[LogLine], None]
"""Never blocks."""


class _RoleLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.roles: dict[SourceKind, Put] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(LOG_PATH):
            return
        role = next(
            (role for role, names in OWN.items() if role in self.roles and record.name.startswith(names)), None
        )
        role = role or next((role for role in OWN if role in self.roles), None)
        if role is not None:
            self.roles[role](_line(role, record))


_HANDLER: Final = _RoleLines()
_LOCK: Final = threading.Lock()


async def keep_own_lines(role: SourceKind, put: Put) -> None:
    """Puts there what the role logs, until cancelled. `put` is called on the event loop: handlers of the logging
    module are called in the thread that logs."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def put_on_loop(line: LogLine) -> None:
        if threading.get_ident() == thread:
            put(line)  # waking the loop from its own thread would be two system calls for each line
        elif not loop.is_closed():
            loop.call_soon_threadsafe(put, line)

    with own_lines(role, put_on_loop):
        await anyio.sleep_forever()


@contextmanager
def own_lines(role: SourceKind, put: Put) -> Iterator[None]:
    """While the body runs, what the role logs is put there, too."""
    logger = logging.getLogger("homeport")
    with _LOCK:
        _HANDLER.roles[role] = put
        if _HANDLER not in logger.handlers:
            logger.addHandler(_HANDLER)
    try:
        yield
    finally:
        with _LOCK:
            if _HANDLER.roles.get(role) is put:
                del _HANDLER.roles[role]
            if not _HANDLER.roles:
                logger.removeHandler(_HANDLER)


def _line(role: SourceKind, record: logging.LogRecord) -> LogLine:
    fields = {name: str(value) for name, value in fields_of(record).items()}
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = repr(record.exc_info[1])
    at = datetime.fromtimestamp(record.created, UTC)
    return LogLine(at, role.value, LEVELS.get(record.levelname, "info"), record.getMessage(), fields)
