"""What is given on the command line wins, and what was asked for is said where nothing matches."""

from collections.abc import Mapping
from typing import Any

import click
import pytest

from homeport.cli.options import Settings, connected, listed, pass_settings
from homeport.cli.terminal.output import Column, TableListing, printable, show

THINGS = TableListing(
    "things", (Column("NAME", lambda item: str(item["name"])),), lambda item: str(item["name"]), "None yet."
)
NOTHING: Mapping[str, Any] = {"things": []}


@click.group()
@connected
def root() -> None:
    """As `homeport` is."""


@root.command()
@connected
@pass_settings
def where(settings: Settings) -> str:
    return settings.url


@root.command("list")
@click.option("--site")
@listed
@pass_settings
def list_things(settings: Settings, *, site: str | None, watch: bool) -> None:
    show(settings, THINGS, lambda: NOTHING, watch=watch)


@pytest.mark.parametrize(
    "arguments", [["--url", "http://given", "where"], ["where", "--url", "http://given"]], ids=["before", "after"]
)
def test_a_url_on_the_command_line_wins_over_the_environment(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMEPORT_URL", "http://environment")
    assert root.main(arguments, standalone_mode=False, obj=Settings()) == "http://given"
    assert root.main(["where"], standalone_mode=False, obj=Settings()) == "http://environment"


def test_a_list_that_nothing_matches_does_not_say_that_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    root.main(["list", "--site", "nothere"], standalone_mode=False, obj=Settings())
    assert capsys.readouterr().err == "Nothing matches  --site nothere\n"
    root.main(["list"], standalone_mode=False, obj=Settings())
    assert capsys.readouterr().err == "None yet.\n"


def test_a_terminal_shows_what_an_app_is_called_and_does_not_obey_it(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "web\x1b[2J\x1b]0;owned\x07"
    assert "\x1b" not in printable(evil) and printable(evil).startswith("web")
    show(Settings(), THINGS, lambda: {"things": [{"name": evil}]}, watch=False)
    assert "\x1b" not in capsys.readouterr().out
