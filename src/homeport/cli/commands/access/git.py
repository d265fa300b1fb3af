"""`homeport setup-git` and `homeport git-credential`: git clones from and pushes to central with your login."""

import shlex
import subprocess
import sys
from typing import Final

import click

from homeport.cli.api.client import Client
from homeport.cli.api.contexts import path as configuration_file
from homeport.cli.local.command_path import command_path
from homeport.cli.options import Settings, connected, pass_settings
from homeport.cli.terminal.output import done
from homeport.errors import HomeportError, NotFound

REPOSITORY: Final = "/git/deployments.git"
USER: Final = "homeport"
"""Central checks only the password, which is a token or a key."""


@click.command("setup-git")
@click.option("--print", "only_print", is_flag=True, help="Print the git commands, and change nothing.")
@connected
@pass_settings
def setup_git(settings: Settings, only_print: bool) -> None:
    """Let git clone from and push to this server: with your login, and trusting its certificate.

    Writes to your own git configuration, for this server alone. The token is not written there: git asks for it each
    time.
    """
    client = Client(settings.url)
    settings_of_git = [(f"credential.{client.url}.helper", ""), (f"credential.{client.url}.helper", _helper())]
    authority = client.authority()
    if authority:
        file = configuration_file().parent / f"{client.host}.crt"
        settings_of_git.append((f"http.{client.url}.sslCAInfo", str(file)))
        if not only_print:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(authority, "utf-8")
    commands = [
        ["git", "config", "--global", "--replace-all" if first else "--add", name, value]
        for first, (name, value) in zip((True, False, True), settings_of_git, strict=False)
    ]
    if only_print:
        for command in commands:
            click.echo(shlex.join(command))
        return
    for command in commands:
        _run(command)
    done(f"git logs in to {client.url} with your login")
    click.echo(f"  Clone the deployments:  git clone {client.url}{REPOSITORY}")


@click.command("git-credential", hidden=True)
@click.argument("operation")
def git_credential(operation: str) -> None:
    """Answer git, which calls this as its credential helper: see git help credentials."""
    asked = dict(line.rstrip("\n").partition("=")[::2] for line in sys.stdin if "=" in line)
    if operation != "get":
        return
    token = Client(f"{asked.get('protocol', '')}://{asked.get('host', '')}").token()
    if token:
        click.echo(f"username={USER}\npassword={token}")


def _helper() -> str:
    """By its whole path: git may be called where `homeport` is not in PATH."""
    return f"!{shlex.quote(command_path())} git-credential"


def _run(command: list[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NotFound("The program git is not installed here.") from error
    if ended.returncode != 0:
        raise HomeportError(f"{shlex.join(command)} failed: {ended.stderr.strip()}")
