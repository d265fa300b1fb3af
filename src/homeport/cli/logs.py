"""Logs of a role, on stderr: lines for a person at a terminal, JSON for a program.

Messages are constant and carry fields, so that they can be counted; structlog and the standard library's loggers
end in the same place. The node uses the latter alone, to stay small.
"""

import json
import logging
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "fields"}
_SIGNS: Final = {"INFO": " ", "WARNING": "!", "ERROR": "✗", "CRITICAL": "✗", "DEBUG": "·"}


def logged(command: Decorated) -> Decorated:
    """Adds --log-level and --log-format, which the command hands to `configure_logs`."""
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="How to log; text at a terminal and json elsewhere when left out.",
    )(command)
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="The least to log.",
    )(command)


def configure_logs(level: str, form: str | None, *, with_structlog: bool = True) -> None:
    handler = EnduringHandler(sys.stderr)
    chosen = form or ("text" if sys.stderr.isatty() else "json")
    handler.setFormatter(TextFormatter() if chosen == "text" else JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("homeport").setLevel(level.upper())
    if with_structlog:
        _join_structlog()


class EnduringHandler(logging.StreamHandler[TextIO]):
    """A full disk costs lines of the log and nothing else. Once there is space again, the log says how many."""

    lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost = self.lost
        if lost:
            super().emit(_of_the_lost(lost))
            self.lost = 0 if self.lost == lost else lost
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        if isinstance(sys.exc_info()[1], OSError):
            self.lost += 1
        else:
            super().handleError(record)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = "  ".join(f"{name}={_short(value)}" for name, value in fields_of(record).items())
        line = f"{clock} {_SIGNS.get(record.levelname, ' ')} {record.getMessage()}   {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def _of_the_lost(lines: int) -> logging.LogRecord:
    fields = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord({**fields, "msg": "the log could not be written", "lines": lines})


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What was given besides the message, by either kind of logger."""
    extra = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    return {**extra, **getattr(record, "fields", {})}


def _join_structlog() -> None:
    import structlog  # noqa: PLC0415 - not in the node's process

    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, _hand_on],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _hand_on(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Fields travel in one attribute: a field called `name` must not meet the record's own."""
    exc_info = event.pop("exc_info", None)
    message = str(event.pop("event", ""))
    return (message,), {"extra": {"fields": dict(event)}, "exc_info": exc_info}


def _short(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text
