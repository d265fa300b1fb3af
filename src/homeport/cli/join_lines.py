"""Shared by the join commands: the lifetime of a token, and the command line for the other machine."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from homeport.cli.options import Settings
from homeport.cli.roles.running import tell
from homeport.cli.terminal.output import print_data

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

valid_option = click.option(
    "--valid",
    type=click.FloatRange(min=1, max=30 * 24 * 60),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="How long the token is good for.",
)


lifetime_option = click.option(
    "--svid-lifetime",
    type=click.FloatRange(min=2, max=365 * 86_400),
    default=86_400,
    show_default=True,
    metavar="SECONDS",
    help="How long the certificates live that it signs; they are renewed at half of it.",
)


svid_option = click.option(
    "--svid-dir",
    "svid_folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Its identity comes from an authority outside (SPIRE), which keeps svid-cert.pem, svid-key.pem, svid-ca.pem "
    "there.",
)
wfm_option = click.option(
    "--wfm", "wfm_id", default="central", show_default=True, help="What central is called in SPIFFE IDs."
)


def join_options(command: Decorated) -> Decorated:
    """--join and --pin, for the roles that join."""
    command = click.option("--pin", metavar="sha256:HEX", help="The key to expect there; from the join command.")(
        command
    )
    return click.option(
        "--join",
        "join_token",
        envvar="HOMEPORT_JOIN_TOKEN",
        metavar="TOKEN",
        help="Join with this one-time token; also read from HOMEPORT_JOIN_TOKEN.",
    )(command)


def print_line(settings: Settings, arguments: list[str], invitation: Mapping[str, Any]) -> None:
    """Only the line on stdout, so that it can be piped to the other machine."""
    line = shlex.join(["homeport", *arguments])
    if settings.is_data:
        print_data(settings, {"command": line, "expires_at": invitation["expires_at"]})
        return
    click.echo(line)
    until = str(invitation["expires_at"])[:16].replace("T", " ")
    click.echo(f"Run it on the new machine before {until} UTC. It works once.", err=True)


def tell_waiting(noun: str, name: str) -> Callable[[str], None]:
    def waiting(key: str) -> None:
        tell(f"Waiting for approval:  homeport {noun} approve {name} --key {key}")

    return waiting


def tell_login(url: str, pin: str | None) -> None:
    """`pin` where the certificate is our own, which no public authority signed."""
    tell(f"  Log in from elsewhere with  homeport login {url}{'' if pin is None else f' --pin {pin}'}")
