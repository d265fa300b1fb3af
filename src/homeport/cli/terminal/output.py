"""Printing: tables for scanning, JSON and YAML for programs, ids alone for pipes.

A list is described once, as columns over the items of a response. Rich is imported only when a table is printed.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from homeport.cli.options import Settings
from homeport.cli.terminal.fitting import GAP, fit, is_tower
from homeport.cli.terminal.safe_text import moving
from homeport.core.logs.text import without_colours
from homeport.errors import TransientError
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    # For its type alone: roles print lines, and never ask a server.
    from types import FrameType

    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from homeport.cli.api.client import Client

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
SHOW_CURSOR: Final = b"\x1b[?25h"
BELOW: Final = 4
"""How far a note below its row is indented."""
BESIDE_MIN: Final = 24
"""How wide a text must be that is wrapped beside its head."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    value: Callable[[Item], str]
    wide: bool = False
    """Shown with `-o wide` only."""
    vital: bool = False
    """On a narrow screen others make room for it."""


@dataclass(frozen=True, slots=True)
class TableListing:
    key: str
    """The key of the items in the response."""
    columns: Sequence[Column]
    identity: Callable[[Item], str]
    """What `-q` prints."""
    empty: str
    """The message for an empty list, with what to do about it."""
    fields: tuple[str, ...] = ()
    """The fields that the table needs, where these are far fewer than all."""


def show_list(
    settings: Settings, listing: TableListing, client: "Client", path: str, *, watch: bool, **query: Any
) -> None:
    """A list of the server, requested page by page, and only as much as is printed."""
    is_table = not settings.is_data and not settings.quiet
    fields = ",".join(listing.fields) if listing.fields and is_table else None
    show(
        settings,
        listing,
        lambda: client.pages(path, listing.key, limit=settings.limit, fields=fields, **query),
        watch=watch,
    )


def show(settings: Settings, listing: TableListing, fetch: Callable[[], Item], *, watch: bool) -> None:
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
    """One item in full: names on the left, values on the right; empty values are left out."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        if value:
            echo_wrapped(f"{name:<{width}}   ", printable(value))


def echo_wrapped(head: str, text: str) -> None:
    """One line; on a screen that is narrower, lines that are indented to where the text began, or below its head
    where too little room is left beside it. Line breaks of the text are indented too: what somebody gave as a reason
    must not look like an entry of its own."""
    from shutil import get_terminal_size  # noqa: PLC0415 - start-up time
    from textwrap import wrap  # noqa: PLC0415

    available = get_terminal_size().columns if sys.stdout.isatty() else 0
    beside = len(click.unstyle(head))
    text = text.replace("\n", "\n    ")
    if available == 0 or "\n" in text or beside + len(text) <= available:
        click.echo(f"{head}{text}".rstrip())
        return
    indentation = " " * (beside if available - beside >= BESIDE_MIN else 4)
    lines = wrap(text, available - len(indentation), break_on_hyphens=False)
    if len(indentation) < beside:
        click.echo(head.rstrip())
        head = indentation
    for line in lines:
        click.echo(f"{head}{line}")
        head = indentation


def done(message: str) -> None:
    click.echo(f"{click.style('✓', fg='green')} {printable(message)}")


def printable(text: str) -> str:
    """Text without terminal control sequences: names and messages come from authors of apps and from registries."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def write_output(text: str, *, nl: bool = False) -> None:
    """What a program of others printed. A program that reads us gets it as it is, colours too; a person's terminal
    gets text, with a line for each step of a progress bar."""
    if sys.stdout.isatty():
        text = printable(without_colours(text.replace("\r\n", "\n").replace("\r", "\n")))
    click.echo(text, nl=nl, color=True)


def console(settings: Settings, *, width: int | None = None) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - start-up time

    return Console(
        no_color=settings.color is False or None,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
        width=width,
        file=moving(sys.stdout),
    )


def print_table(settings: Settings, columns: Sequence[Column], items: Sequence[Item]) -> None:
    # A pipe has no width: nothing is truncated or wrapped there, so that `grep` finds whole lines.
    screen = console(settings, width=None if sys.stdout.isatty() else 1000)
    with screen.capture() as captured:
        screen.print(table(settings, columns, items, available=screen.width))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def table(settings: Settings, columns: Sequence[Column], items: Sequence[Item], *, available: int) -> "Group":
    """Its last column, a note, is wrapped beside the others; where that would be a tower of words, below each row."""
    from rich.cells import cell_len  # noqa: PLC0415 - start-up time
    from rich.console import Group  # noqa: PLC0415
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = [column for column in columns if not column.wide or settings.output == "wide"]
    rows = [[printable(column.value(item)) for column in shown] for item in items]
    titles = [cell_len(column.title) for column in shown]
    naturals = [
        max(width, *(cell_len(line) for row in rows for line in row[position].split("\n")), 0)
        for position, width in enumerate(titles)
    ]
    vital = [position for position, column in enumerate(shown) if column.vital]
    widths = fit(naturals, titles, available, vital=vital)
    last = len(shown) - 1
    if not is_tower(naturals[last], widths[last], len(shown)):
        grid = _grid([(shown[each].title, width) for each, width in widths.items()], wraps=True)
        for row in rows:
            grid.add_row(*(_cell(row[each]) for each in widths))
        return Group(grid)
    widths = fit(naturals[:-1], titles[:-1], available, vital=vital)
    heads = [(shown[each].title, width) for each, width in widths.items()]
    grid = _grid(heads)
    parts: list[RenderableType] = [grid]
    for row in rows:
        grid.add_row(*(_cell(row[each]) for each in widths))
        if row[last]:
            grid = _grid(heads, has_heads=False)
            parts += [Padding.indent(Text(row[last]), BELOW), grid]
    return Group(*parts)


def _grid(columns: Sequence[tuple[str, int]], *, has_heads: bool = True, wraps: bool = False) -> "Table":
    """With `wraps`, the last column continues in the next line; else what does not fit ends with an ellipsis."""
    from rich.table import Table  # noqa: PLC0415 - start-up time

    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", show_header=has_heads)
    for position, (title, width) in enumerate(columns):
        folds = wraps and position == len(columns) - 1
        grid.add_column(title, width=width, no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    return grid


def _cell(text: str) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - start-up time

    return Text(text, style=STATE_COLORS.get(text, ""))


def _print_once(settings: Settings, listing: TableListing, answer: Item, *, compact: bool = False) -> None:
    items = answer[listing.key]
    if settings.quiet:
        for item in items:
            click.echo(listing.identity(item))
    elif settings.is_data:
        print_data(settings, answer, compact=compact)
    elif not items:
        click.echo(_nothing(listing), err=True)
    else:
        print_table(settings, listing.columns, items)
        if answer.get("next"):
            click.echo("… and more; ask for them with a higher --limit, or with none.", err=True)


def _nothing(listing: TableListing) -> str:
    """With a filter, "nothing yet" would be wrong: then nothing matches."""
    ctx = click.get_current_context(silent=True)
    if ctx is None:
        return listing.empty
    given = [
        max(parameter.opts, key=len) + ("" if parameter.is_flag else f" {ctx.params[parameter.name]}")
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and parameter.name in ctx.params
        and parameter.name not in {"watch", "limit", "once"}
        and ctx.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
    ]
    return f"Nothing matches  {' '.join(given)}" if given else listing.empty


def _watch_lines(settings: Settings, listing: TableListing, fetch: Callable[[], Item]) -> None:
    """For a pipe: the list again whenever it has changed, as one line of JSON or one YAML document each."""
    shown: Item | None = None
    with _until_interrupted():
        while not _is_reader_gone():
            answer = fetch()
            if answer != shown:
                _print_once(settings, listing, answer, compact=True)
                sys.stdout.flush()
            shown = answer
            time.sleep(REFRESH_SECONDS)


def _is_reader_gone() -> bool:
    """Whether what reads our output, such as `head -1`, has ended: a pipe says so only to those who write or ask."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in asked.poll(0))


def _watch_screen(settings: Settings, listing: TableListing, fetch: Callable[[], Item]) -> None:
    """A server that is restarted meanwhile is waited for; what was shown last stays."""
    from rich.console import Group  # noqa: PLC0415 - start-up time
    from rich.text import Text  # noqa: PLC0415

    screen, shown = console(settings), None
    with _until_interrupted(), live_display(screen) as live:
        while True:
            try:
                items = fetch()[listing.key]
            except TransientError as error:
                if shown is None:
                    raise
                live.update(
                    Group(shown, Text(f"{printable(str(error))} Trying again.", style="yellow")), refresh=True
                )
            else:
                found = table(settings, listing.columns, items, available=screen.width) if items else None
                shown = found or Text(_nothing(listing))
                live.update(shown, refresh=True)
            time.sleep(REFRESH_SECONDS)


def live_display(screen: "Console", *, transient: bool = False) -> "Live":
    """What is redrawn in place. The cursor is hidden meanwhile, and shown again also when SIGTERM ends the command,
    as `timeout` does: the signal's default would leave the terminal without one."""
    from rich.live import Live  # noqa: PLC0415 - start-up time

    signal.signal(signal.SIGTERM, _show_cursor_and_end)
    return Live(console=screen, auto_refresh=False, transient=transient)


def _show_cursor_and_end(number: int, _: "FrameType | None") -> None:
    signal.signal(number, signal.SIG_DFL)
    try:
        os.write(sys.stdout.fileno(), SHOW_CURSOR)
    finally:
        os.kill(os.getpid(), number)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C ends a watch normally."""
    try:
        yield
    except KeyboardInterrupt:
        return
