"""Tables fit the terminal, say that something is cut, and never cut what a line is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.cli.options import Settings
from homeport.cli.terminal.fitting import GAP, fit
from homeport.cli.terminal.output import Column, console, table

COLUMNS = [
    Column("NAME", lambda item: str(item["name"])),
    Column("APP", lambda item: str(item["app"])),
    Column("STATE", lambda item: str(item["state"])),
    Column("NODE", lambda item: str(item["node"])),
    Column("NOTE", lambda item: str(item["note"])),
]
ITEM = {
    "name": "greeter@north",
    "app": "messaging/greeter 1.10.0-rc.2",
    "state": "ROLLINGBACK",
    "node": "vm-afcc7300.internal.example",
    "note": "the image localhost/demo/greeter:1.10 cannot be pulled: manifest unknown",
}


def printed(width: int) -> list[str]:
    screen = console(Settings(), width=width)
    with screen.capture() as captured:
        screen.print(table(Settings(), COLUMNS, [ITEM], available=width))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_list_fits_and_its_first_column_is_whole(width: int) -> None:
    lines = printed(width)
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("greeter@north   ")
    assert len(lines) <= 8, "a note takes some lines, not two letters each"
    assert "…" in lines[1], "what is cut says so"


def test_nothing_is_cut_where_there_is_room() -> None:
    assert printed(1000)[1] == "   ".join(str(ITEM[key]) for key in ("name", "app", "state", "node", "note"))


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 12)), min_size=2, max_size=12), st.integers(40, 300))
def test_what_is_shown_fits_and_has_first_and_last(columns: list[tuple[int, int]], available: int) -> None:
    naturals, titles = [max(pair) for pair in columns], [title for _, title in columns]
    widths = fit(naturals, titles, available)
    assert {0, len(columns) - 1} <= widths.keys()
    total = sum(widths.values()) + GAP * (len(widths) - 1)
    assert total <= max(available, 32 + 16 + GAP)
    assert all(1 <= width <= naturals[each] for each, width in widths.items())
