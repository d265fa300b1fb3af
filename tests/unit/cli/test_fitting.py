"""Tables fit the terminal, say that something is cut, and never cut what a line is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeport.cli.options import Settings
from homeport.cli.terminal.fitting import GAP, fit
from homeport.cli.terminal.output import Column, console, echo_wrapped, table

COLUMNS = [
    Column("NAME", lambda item: str(item["name"])),
    Column("APP", lambda item: str(item["app"])),
    Column("STATE", lambda item: str(item["state"]), vital=True),
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
    assert len(lines) <= 5, "a note takes some lines, not a word each"
    assert "…" in lines[1] or "1.10.0-rc.2" in lines[1], "what is cut says so"
    assert " ".join(" ".join(lines).split()).count("manifest unknown") == 1


def test_a_note_goes_below_its_row_before_it_becomes_a_tower_of_words() -> None:
    items = [ITEM, {**ITEM, "name": "web@north", "note": ""}, {**ITEM, "name": "db@north"}]
    screen = console(Settings(), width=80)
    with screen.capture() as captured:
        screen.print(table(Settings(), COLUMNS, items, available=80))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert [line.split()[0] for line in lines] == ["NAME", "greeter@north", "the", "web@north", "db@north", "the"]
    assert lines[2] == f"    {ITEM['note']}"
    states = {line.index("ROLLINGBACK") for line in lines if "ROLLINGBACK" in line}
    assert states == {lines[0].index("STATE")}, "rows stay below their heads"


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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_state_is_there_on_every_screen(width: int) -> None:
    assert "ROLLINGBACK" in printed(width)[1]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("head", ["note   ", "12:00:00   deployment.progress   home / laptop          "])
def test_a_long_text_is_wrapped_below_where_it_began(
    width: int, head: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    text = "the image cannot be pulled, because its registry has no such image or tag " * 2
    echo_wrapped(head, text.strip())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith(head.rstrip())
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(" ".join(lines).removeprefix(head.rstrip()).split()) == text.strip()


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    echo_wrapped("note   ", "word " * 100)
    assert len(capsys.readouterr().out.splitlines()) == 1
