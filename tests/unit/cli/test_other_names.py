"""The names people try first lead to the command they mean."""

import click
import pytest

from homeport.cli.lazy import ELSEWHERE
from homeport.cli.main import cli


def resolved(*arguments: str) -> str:
    """The function behind a command line."""
    command: click.Command = cli
    rest = list(arguments)
    while rest and isinstance(command, click.Group):
        _, found, rest = command.resolve_command(click.Context(command, info_name="homeport"), rest)
        assert found is not None
        command = found
    assert command.callback is not None
    return f"{command.callback.__module__.rpartition('.')[2]}.{command.name}"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ps", "deployments.list"),
        ("ls", "deployments.list"),
        ("rollback", "deployments.rollback"),
        ("delete", "deployments.delete"),
        ("rm", "deployments.delete"),
        ("deployment ls", "deployments.list"),
        ("deployments remove", "deployments.delete"),
        ("app list", "apps.list"),
        ("apps rm", "apps.remove"),
        ("apps delete", "apps.remove"),
        ("tokens rm", "tokens.revoke"),
        ("nodes describe", "nodes.show"),
        ("describe", "deployments.show"),
        ("inspect", "deployments.show"),
        ("node list", "nodes.list"),
        ("site show", "sites.show"),
        ("secret ls", "secrets.list"),
    ],
)
def test_another_tools_name_means_our_command(line: str, command: str) -> None:
    assert resolved(*line.split()) == command


def test_a_role_is_still_run_by_its_own_name() -> None:
    assert resolved("node", "--site", "x") == "node.node"
    assert resolved("site") == "site.site"


@pytest.mark.parametrize("word", sorted(ELSEWHERE))
def test_a_word_of_another_tool_is_answered_with_what_to_type(word: str) -> None:
    with pytest.raises(click.UsageError, match=rf'There is no command "{word}"\.  Type  homeport \w+'):
        resolved(word)


@pytest.mark.parametrize("noun", ["deployments", "nodes", "jobs", "models"])
def test_help_cuts_no_sentence(noun: str) -> None:
    group = cli.get_command(click.Context(cli), noun)
    assert group is not None
    assert "..." not in group.get_help(click.Context(group, info_name=noun)).partition("Commands:")[2]
