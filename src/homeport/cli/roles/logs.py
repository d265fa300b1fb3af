"""Logs of a role, on stderr: text for a terminal, JSON for a program.

Messages are constant and carry fields (`homeport.log`), so that they can be counted. Log lines of libraries have the
same format.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO, TypeVar

import click

from homeport.cli.terminal.output import printable
from homeport.log import fields_of

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

BRIEF_SECONDS: Final = 5.0
_SIGNS: Final = {"INFO": " ", "WARNING": "!", "ERROR": "✗", "CRITICAL": "✗", "DEBUG": "·"}


def logged(command: Decorated) -> Decorated:
    """Adds --log-level and --log-format, which the command passes to `configure_logs`."""
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="Log format; text at a terminal and json elsewhere when omitted.",
    )(command)
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Lowest level to log.",
    )(command)


def configure_logs(level: str, form: str | None, *, is_brief: bool = False) -> None:
    """With `is_brief`, a start at a terminal shows warnings alone, unless it takes long or logs were asked for."""
    handler = EnduringHandler(sys.stderr)
    if is_brief and level == "info" and not _is_asked_for() and sys.stderr.isatty():
        handler.addFilter(BriefStart())
    chosen = form or ("text" if sys.stderr.isatty() else "json")
    handler.setFormatter(TextFormatter() if chosen == "text" else JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("homeport").setLevel(level.upper())


def _is_asked_for() -> bool:
    """Whether logging options were given to the running command, default values included."""
    ctx = click.get_current_context()
    sources = {ctx.get_parameter_source(name) for name in ("log_level", "log_format")}
    return sources != {click.core.ParameterSource.DEFAULT}


class BriefStart(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._ends_at = time.monotonic() + BRIEF_SECONDS

    def end(self) -> None:
        self._ends_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or time.monotonic() >= self._ends_at


def role_is_up() -> None:
    """From now on everything is logged."""
    for handler in logging.getLogger().handlers:
        for each in handler.filters:
            if isinstance(each, BriefStart):
                each.end()


class EnduringHandler(logging.StreamHandler[TextIO]):
    """A full disk only loses log lines. Once there is space again, the number of lost lines is logged."""

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
        message = _on_one_line(record.getMessage())
        line = f"{clock} {_SIGNS.get(record.levelname, ' ')} {message}   {fields}".rstrip()
        return f"{line}\n{printable(self.formatException(record.exc_info))}" if record.exc_info else line


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
    return logging.makeLogRecord({**fields, "msg": "log write failed", "lines": lines})


def _short(value: Any) -> str:
    text = _on_one_line(str(value))
    return f'"{text}"' if " " in text else text


def _on_one_line(text: str) -> str:
    """Others' words in it can neither start a line that looks like ours nor control the terminal."""
    return printable(text).replace("\n", "\\n")
