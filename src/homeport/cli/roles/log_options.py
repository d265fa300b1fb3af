"""The options of a role about logs, as one value: how much is kept, how much a source may write, and where lines are
sent on to."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from homeport.cli.roles.config_file import tune
from homeport.cli.roles.sizes import SIZE
from homeport.core.logs.settings import LogSettings, NodeLogSettings
from homeport.errors import InvalidInput

Command = Callable[..., None]
HEADERS_BYTES_MAX: Final = 16_384


def log_store_options(command: Command) -> Command:
    """For central and sites; the command gets LogSettings as `logs` of `tuned()`."""

    @wraps(command)
    def gathered(
        *,
        logs_days: float,
        logs_size: int,
        logs_otlp: str | None,
        logs_loki: str | None,
        logs_headers: Path | None,
        **others: Any,
    ) -> None:
        logs = LogSettings(
            days=logs_days,
            bytes_max=logs_size,
            own=True,
            otlp_url=logs_otlp,
            loki_url=logs_loki,
            headers=read_headers(logs_headers),
        )
        tune(logs=logs)
        command(**others)

    return _with(
        gathered,
        click.option("--logs-days", type=float, default=7.0, show_default=True, help="How long log lines are kept."),
        click.option("--logs-size", type=SIZE, default="2G", show_default=True, help="Their maximum size on disk."),
        click.option("--logs-otlp", metavar="URL", help="Send log lines on as OTLP, as in http://HOST:4318/v1/logs"),
        click.option("--logs-loki", metavar="URL", help="... and to Loki, as in http://HOST:3100/loki/api/v1/push"),
        click.option(
            "--logs-headers",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Lines NAME: VALUE that are sent to both, for a tenant or a token.",
        ),
    )


def log_buffer_options(command: Command) -> Command:
    """For nodes; the command gets NodeLogSettings as `logs` of `tuned()`, or as `node_logs` in `homeport up`."""

    @wraps(command)
    def gathered(*, logs_buffer: int, logs_lines: float, **others: Any) -> None:
        name = "node_logs" if command.__name__ == "up" else "logs"
        tune(**{name: NodeLogSettings(bytes_max=logs_buffer, lines_per_second=logs_lines, own=True)})
        command(**others)

    return _with(
        gathered,
        click.option(
            "--logs-buffer",
            type=SIZE,
            default="256M",
            show_default=True,
            help="Maximum size of buffered log lines while the site is unreachable.",
        ),
        click.option(
            "--logs-lines",
            type=click.FloatRange(min=0),
            default=5_000,
            show_default=True,
            help="How many lines a second one container may write; 0 for any.",
        ),
    )


def read_headers(path: Path | None) -> Mapping[str, str]:
    """From a file, since a command line can be read by every user of the machine."""
    if path is None:
        return {}
    headers = {}
    for number, line in enumerate(path.read_text("utf-8")[:HEADERS_BYTES_MAX].splitlines(), start=1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip().isascii() or " " in name.strip() or not value.strip().isprintable():
            raise InvalidInput(f"{path}, line {number} is not a header.", hint="Write  NAME: VALUE  on each line.")
        headers[name.strip()] = value.strip()
    return headers


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
