"""Printing: tables for scanning, JSON and YAML for programs, ids alone for pipes.

A list is described once, as columns over the items of an answer. Rich is imported only when a table is printed.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from homeport.cli.options import Settings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Item = Mapping[str, Any]

STATE_COLORS: Final[Mapping[str, str]] = {
    "INSTALLED": "green",
    "FAILED": "red",
    "ROLLINGBACK": "red",
    "UPDATING": "yellow",
    "INSTALLING": "yellow",
    "DELETING": "yellow",
    "live": "green",
    "stale": "yellow",
    "lost": "red",
    "drained": "yellow",
    "yes": "green",
    "no": "red",
}
REFRESH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    value: Callable[[Item], str]
    wide: bool = False
    """Shown with `-o wide` only."""


@dataclass(frozen=True, slots=True)
class Listing:
    key: str
    """Under which the answer holds its items."""
    columns: Sequence[Column]
    identity: Callable[[Item], str]
    """What `-q` prints."""
    empty: str
    """What to say when there is nothing, with what to do about it."""


def show(settings: Settings, listing: Listing, fetch: Callable[[], Item], *, watch: bool) -> None:
    if not watch:
        _print_once(settings, listing, fetch())
    elif sys.stdout.isatty() and not settings.is_data and not settings.quiet:
        _watch_screen(settings, listing, fetch)
    else:
        _watch_lines(settings, listing, fetch)


def print_data(settings: Settings, answer: Any, *, compact: bool = False) -> None:
    if settings.output == "yaml":
        import yaml  # noqa: PLC0415 - not needed otherwise

        click.echo(yaml.safe_dump(answer, sort_keys=False, allow_unicode=True, explicit_start=compact), nl=False)
    else:
        click.echo(json.dumps(answer, indent=None if compact else 2, ensure_ascii=False))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """One thing in full: names on the left, values on the right; what is empty is left out."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        if value:
            click.echo(f"{name:<{width}}   {value}".rstrip())


def done(message: str) -> None:
    click.echo(f"{click.style('✓', fg='green')} {message}")


def console(settings: Settings, *, width: int | None = None) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - start-up time

    return Console(
        no_color=settings.color is False or None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
        width=width,
    )


def print_table(settings: Settings, columns: Sequence[Column], items: Sequence[Item]) -> None:
    # A pipe has no width: nothing is cut or wrapped there, so that `grep` finds whole lines.
    screen = console(settings, width=None if sys.stdout.isatty() else 1000)
    with screen.capture() as captured:
        screen.print(table(settings, columns, items))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def table(settings: Settings, columns: Sequence[Column], items: Sequence[Item]) -> "Table":
    from rich.table import Table  # noqa: PLC0415 - start-up time
    from rich.text import Text  # noqa: PLC0415

    shown = [column for column in columns if not column.wide or settings.output == "wide"]
    grid = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for position, column in enumerate(shown):
        grid.add_column(column.title, no_wrap=position < len(shown) - 1, overflow="fold")
    for item in items:
        values = [column.value(item) for column in shown]
        grid.add_row(*(Text(value, style=STATE_COLORS.get(value, "")) for value in values))
    return grid


def _print_once(settings: Settings, listing: Listing, answer: Item, *, compact: bool = False) -> None:
    items = answer[listing.key]
    if settings.quiet:
        for item in items:
            click.echo(listing.identity(item))
    elif settings.is_data:
        print_data(settings, answer, compact=compact)
    elif not items:
        click.echo(listing.empty, err=True)
    else:
        print_table(settings, listing.columns, items)


def _watch_lines(settings: Settings, listing: Listing, fetch: Callable[[], Item]) -> None:
    """For a pipe: the list again whenever it has changed, as one line of JSON or one YAML document each."""
    shown: Item | None = None
    with _until_interrupted():
        while True:
            answer = fetch()
            if answer != shown:
                _print_once(settings, listing, answer, compact=True)
                sys.stdout.flush()
            shown = answer
            time.sleep(REFRESH_SECONDS)


def _watch_screen(settings: Settings, listing: Listing, fetch: Callable[[], Item]) -> None:
    from rich.live import Live  # noqa: PLC0415 - start-up time
    from rich.text import Text  # noqa: PLC0415

    with _until_interrupted(), Live(console=console(settings), auto_refresh=False) as live:
        while True:
            items = fetch()[listing.key]
            live.update(table(settings, listing.columns, items) if items else Text(listing.empty), refresh=True)
            time.sleep(REFRESH_SECONDS)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C is how a watch ends well."""
    try:
        yield
    except KeyboardInterrupt:
        return
