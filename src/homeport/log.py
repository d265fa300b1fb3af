"""Structured logging: a constant message, and the details as fields.

    log = get_log("homeport.node")
    log.info("order done", deployment=order.deployment_id, seconds=1.2)

A thin layer over the standard library, so that one configuration applies to our lines and those of libraries. `bound`
adds fields to every line written inside it, through awaits and task groups too.
"""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "fields"}
_bound: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=MappingProxyType({}))


class Log:
    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, /, **fields: Any) -> None:
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: Any) -> None:
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: Any) -> None:
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: Any) -> None:
        self._write(logging.ERROR, message, fields)

    def narrate(
        self,
        message: str,
        /,
        *,
        actor: str,
        action: str,
        target: str,
        human: str,
        level: int = logging.INFO,
        **fields: Any,
    ) -> None:
        """A decision, with a sentence that a person can read: in the present tense, at most a hundred characters, not
        made of ids. `target` names what it is about."""
        self._write(level, message, {"actor": actor, "action": action, "target": target, "human": human, **fields})

    def exception(self, message: str, /, *, error: BaseException | None = None, **fields: Any) -> None:
        """With the stack trace of `error`, or of the exception that is being handled."""
        self._write(logging.ERROR, message, fields, exc_info=error or True)

    def _write(
        self, level: int, message: str, fields: dict[str, Any], *, exc_info: BaseException | bool | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            # Fields are in one attribute: a field called `name` must not clash with the record's own.
            self._logger.log(level, message, exc_info=exc_info, extra={"fields": {**_bound.get(), **fields}})


def get_log(name: str) -> Log:
    return Log(name)


class LogLevel:
    """Sets the log level of a logger, and restores the previous one with an empty text."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._before: int | None = None

    def __call__(self, level: str) -> None:
        if level:
            self._before = self._logger.level if self._before is None else self._before
            self._logger.setLevel(level.upper())
        elif self._before is not None:
            self._logger.setLevel(self._before)
            self._before = None


class bound:  # noqa: N801 - used like a function
    """Adds these fields to every line written inside. A class, because every request enters one: a generator costs
    twice as much."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._token = _bound.set({**_bound.get(), **self._fields})

    def __exit__(self, *error: object) -> None:
        _bound.reset(self._token)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a log line, from our loggers or a library's."""
    extra = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {**extra, **getattr(record, "fields", {})}
