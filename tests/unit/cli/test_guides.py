"""Every command in the documents exists, with every option that stands after it."""

from pathlib import Path

import click
import pytest

from homeport.cli.lazy import Group
from homeport.cli.main import cli
from tests.support.guides import ROOT, Command, calls_of_homeport, commands, guides, spans

ALL = [command for page in guides() for command in (*commands(page), *spans(page))]


def parse(arguments: list[str]) -> None:
    """As far as names go: what the values mean is decided when it runs."""
    command: click.Command = cli
    context = click.Context(cli, info_name="homeport")
    while True:
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if not isinstance(command, click.Group):
            return
        if not rest:
            return  # "`homeport apps`": the noun alone
        assert isinstance(command, Group)
        name, found, arguments = command.resolve_command(context, rest)
        assert found is not None
        context = click.Context(found, parent=context, info_name=name, **found.context_settings)
        command = found


@pytest.mark.parametrize("command", ALL, ids=lambda command: f"{command.place} {command.text[:60]}")
def test_a_command_in_the_documents_exists_with_its_options(command: Command) -> None:
    for arguments in calls_of_homeport(command):
        try:
            parse(arguments)
        except click.UsageError as error:
            pytest.fail(f"{command.place} says  {command.text}\n{error.format_message()}")


MUST_HAVE_COMMANDS = [
    page for page in guides() if page.parent.name == "how-to" or page.stem in {"README", "tutorial", "first-app"}
]
NOT_WALKED = {
    "CONTRIBUTING.md": "its commands are those that run these tests",
    "docs/how-to/run-at-boot.md": "no systemd runs where the tests do; tests/integration/cli/test_service.py has"
    " systemd-analyze verify the units, and starts a role that tells its readiness",
}
"""Pages whose commands no test can type, and why."""


@pytest.mark.parametrize("page", MUST_HAVE_COMMANDS, ids=lambda page: page.name)
def test_the_commands_of_every_guide_are_found(page: Path) -> None:
    """A guide whose commands are not found, because its blocks are marked otherwise, would not be checked."""
    found = [*commands(page), *spans(page)]
    assert any(calls_of_homeport(command) for command in found), "no command of homeport was found in it"


def test_every_page_with_commands_is_walked() -> None:
    """By a test that names it; `make guides` runs them all."""
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests" / "e2e").glob("test_guides*.py"))
    pages = {page.relative_to(ROOT).as_posix() for page in guides() if any(commands(page))}
    assert {page for page in pages if f'"{page}"' not in tests} == set(NOT_WALKED)
