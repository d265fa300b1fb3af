"""The generated pages are current, and so is the help that is kept outside the commands."""

from pathlib import Path

import click
import pytest

from homeport.cli.exits import MEANING, Exit
from homeport.cli.lazy import load
from homeport.cli.main import cli
from tests.support.pages import ENDINGS, generated_pages

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", generated_pages())
def test_a_generated_page_is_current(name: str) -> None:
    assert (ROOT / name).read_text("utf-8") == generated_pages()[name], "run  make docs"


@pytest.mark.parametrize("name", cli.lazy)
def test_the_line_in_the_list_of_commands_is_the_commands_own(name: str) -> None:
    target, line = cli.lazy[name]
    command = load(target)
    assert command.name == name
    assert (command.help or "").split("\n")[0] == line


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANING) == list(Exit)
    assert [code.value for code in Exit] == list(range(9))


def test_every_happening_is_explained() -> None:
    from homeport.vocabulary import Trigger

    assert set(ENDINGS) == {trigger.value for trigger in Trigger}


@pytest.mark.parametrize("name", [name for name in cli.lazy if name != "contexts"])  # a file of this machine
def test_every_list_can_be_watched_and_printed_for_programs(name: str) -> None:
    command = load(cli.lazy[name][0])
    listing = command.commands.get("list") if isinstance(command, click.Group) else None
    if listing is not None:
        options = {option for parameter in listing.params for option in parameter.opts}
        assert {"--watch", "-w", "-o", "--url", "--no-color"} <= options
