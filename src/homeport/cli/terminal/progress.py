"""Progress lines, `site / node   what   how far`: updated in place on a terminal, one line each elsewhere."""

import sys
from dataclasses import field
from typing import Final

import click

from homeport.cli.options import Settings
from homeport.cli.terminal.ages import size
from homeport.cli.terminal.output import console, live_display, printable
from homeport.lazy_dataclass import dataclass

BAR_WIDTH: Final = 16
STEP_WIDTH: Final = 12


@dataclass(frozen=True, slots=True)
class Line:
    place: str
    step: str
    text: str = ""
    bytes_done: int = 0
    bytes_total: int = 0

    def render(self, width: int) -> str:
        text = f"  {self.place:<{width}}   {self.step:<{STEP_WIDTH}} {self._amount()}{self.text}".rstrip()
        return printable(text)  # a node repeats what programs and registries say

    def _amount(self) -> str:
        if not self.bytes_total:
            return f"{size(self.bytes_done)}   " if self.bytes_done else ""
        filled = min(BAR_WIDTH, BAR_WIDTH * self.bytes_done // self.bytes_total)
        return f"{'━' * filled}{'╌' * (BAR_WIDTH - filled)}  {size(self.bytes_total)}   "


@dataclass
class Plain:
    """For pipes and logs: a line when a step begins, and none for each percent."""

    width: int = 0
    _last: dict[str, Line] = field(default_factory=dict)

    def show(self, line: Line) -> None:
        self.width = max(self.width, len(line.place))
        before = self._last.get(line.place)
        self._last[line.place] = line
        if before is None or (before.step, before.text) != (line.step, line.text):
            click.echo(line.render(self.width))
            sys.stdout.flush()

    def close(self) -> None:
        """Nothing is open."""


class Terminal:
    """The current step of each node, live; finished lines stay above."""

    def __init__(self, settings: Settings) -> None:
        self._live = live_display(console(settings), transient=True)
        self._live.start()
        self._current: dict[str, Line] = {}
        self._width = 0

    def show(self, line: Line) -> None:
        self._width = max(self._width, len(line.place))
        before = self._current.get(line.place)
        if before is not None and before.step != line.step:
            self._print(before)
        self._current[line.place] = line
        self._refresh()

    def close(self) -> None:
        for line in self._current.values():
            self._print(line)
        self._current.clear()
        self._refresh()
        self._live.stop()

    def _print(self, line: Line) -> None:
        # A failure may take several lines; everything else is one line.
        whole = line.step == "failed"
        text = line.render(self._width)
        self._live.console.print(text, no_wrap=not whole, overflow="fold" if whole else "ellipsis")

    def _refresh(self) -> None:
        from rich.text import Text  # noqa: PLC0415 - start-up time

        lines = [line.render(self._width) for line in self._current.values()]
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)


Lines = Plain | Terminal


def lines_for(settings: Settings) -> Lines:
    return Terminal(settings) if sys.stdout.isatty() else Plain()
