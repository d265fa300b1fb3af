"""`--config`: what a file may say, who wins, and how a mistake in it is met."""

from pathlib import Path
from typing import Any

import click
import pytest

from homeport.cli.commands.running.central import central
from homeport.cli.commands.running.node import node
from homeport.cli.commands.running.site import site
from homeport.cli.commands.running.up import up
from homeport.cli.roles.config_file import configured, tuned
from homeport.errors import InvalidInput


@click.command("central")
@configured(audit_days=int, sweep_seconds=float)
@click.option("--http", default="127.0.0.1:8080")
@click.option("--connections", type=click.IntRange(min=10), default=100)
@click.option("--host", "hosts", multiple=True)
@click.option("--tls", is_flag=True)
def role(**options: Any) -> dict[str, Any]:
    return {**options, **tuned()}


def started(tmp_path: Path, text: str, *arguments: str) -> dict[str, Any]:
    file = tmp_path / "homeport.toml"
    file.write_text(text)
    found: dict[str, Any] = role.main(["--config", str(file), *arguments], standalone_mode=False)
    return found


def test_a_file_sets_options_and_settings_that_have_none(tmp_path: Path) -> None:
    text = '[central]\nhttp = "0.0.0.0:8443"\nconnections = 50\nhost = ["a", "b"]\ntls = true\naudit_days = 90\n'
    assert started(tmp_path, text) == {
        "http": "0.0.0.0:8443",
        "connections": 50,
        "hosts": ("a", "b"),
        "tls": True,
        "audit_days": 90,
    }


def test_the_command_line_wins(tmp_path: Path) -> None:
    found = started(tmp_path, '[central]\nhttp = "0.0.0.0:1"\nconnections = 50\n', "--http", "127.0.0.1:2")
    assert (found["http"], found["connections"]) == ("127.0.0.1:2", 50)


def test_one_file_may_serve_every_role(tmp_path: Path) -> None:
    found = started(tmp_path, '[node]\nruntime = "docker"\n[central]\nconnections = 50\n')
    assert (found["connections"], found["http"]) == (50, "127.0.0.1:8080")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[central]\nhtpp = 1\n", '[central] htpp: There is no setting "htpp". Did you mean "http"?'),
        ("[central]\nconnections = 2\n", "[central] connections: 2 is not in the range x>=10."),
        ('[central]\nconnections = "many"\n', "[central] connections: 'many' is not a whole number."),
        ("[central]\nhttp = true\n", "[central] http: must be text or a number."),
        ('[central]\ntls = "yes"\n', "[central] tls: must be true or false."),
        ("[central]\nhttp = [1]\n", "[central] http: must be a single value."),
        ("[central]\nhost = {a = 1}\n", "[central] host: must be a single value."),
        ("[central]\naudit_days = 1.5\n", "[central] audit_days: must be a whole number."),
        ("[central]\naudit_days = true\n", "[central] audit_days: must be a whole number."),
        ("[central]\nsweep_seconds = nan\n", "[central] sweep_seconds: must be a number."),
        ("[central]\nsweep_seconds = inf\n", "[central] sweep_seconds: must be at most 1000000000."),
        (f"[central]\nsweep_seconds = {'9' * 400}\n", "[central] sweep_seconds: must be at most 1000000000."),
        ("[central]\naudit_days = 999999\n", "[central] audit_days: must be at most 36500."),
        ("[central]\naudit_days = 0\n", "[central] audit_days: must be at least 1."),
        ("[central]\nsweep_seconds = 1e-9\n", "[central] sweep_seconds: must be at least 0.01."),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        started(tmp_path, text)
    assert [str(problem) for problem in caught.value.problems] == [f"{tmp_path / 'homeport.toml'}:2  {says}"]


@pytest.mark.parametrize(
    "text",
    ["[central\n", "central = 1\n", "[centrall]\n", "a = " + "[" * 100_000, "\x00\x01", "a = " + "9" * 5000],
    ids=["not TOML", "no section", "unknown section", "deep", "binary", "digits"],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput):
        started(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('http = "127.0.0.1:9000"\n', 'has "http" outside of a section.', "Write  [central]  above its keys."),
        ("[centrall]\n", 'has an unknown section "centrall".', "Known sections: up, central, site, node."),
    ],
)
def test_a_key_without_a_section_is_not_taken_for_one(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        started(tmp_path, text)
    assert caught.value.hint is not None and caught.value.hint.startswith(hint)


@pytest.mark.parametrize("command", [up, central, site, node], ids=lambda command: str(command.name))
def test_every_role_takes_a_file(command: click.Command) -> None:
    assert "--config" in {name for parameter in command.params for name in parameter.opts}
