"""`homeport secrets`: values that deployments of a site refer to by name. They are write-only."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_sites
from homeport.cli.api.finding import only_site
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.output import Column, TableListing, done, print_data, show_list
from homeport.errors import InvalidInput, NotFound, TooLarge

VALUE_BYTES_MAX: Final = 64 * 1024


NAMED: Final = click.argument("named", metavar="[SITE] NAME", nargs=-1, required=True, shell_complete=complete_sites)


@click.group(cls=Group)
def secrets() -> None:
    """Set, list and remove the secrets of sites.

    A deployment refers to one in a parameter:  homeport deploy APP --site SITE --set password=secret://NAME
    """


@secrets.command("set")
@NAMED
@click.option("--from-file", type=click.Path(path_type=Path), help="Read the value from this file.")
@connected
@formatted
@pass_settings
def set_secret(settings: Settings, named: tuple[str, ...], from_file: Path | None) -> None:
    """Set or change a secret of a site (the only one, if none is named): what uses it is updated.

    The value comes from --from-file, from standard input, or from a prompt. One line break at its end is removed.
    """
    if len(named) > 2:
        # Not repeated in the error: the shell's history and `ps` have already shown it.
        raise click.UsageError(
            "A value on the command line can be read by others with ps, and stays in the shell's history. "
            "Pipe it in, use --from-file, or let the command prompt for it. Treat this value as exposed."
        )
    client = Client(settings.url)
    site, name = _site_and_name(client, named)
    text = _value(from_file)
    found = client.put(f"/api/v1/sites/{site}/secrets/{name}", {"value": text})
    if settings.is_data:
        print_data(settings, found)
        return
    done(f"secret {name} of site {site} is set (version {found['version']})")
    click.echo(f"  Use it:  homeport deploy APP --site {site} --set PARAMETER={found['reference']}")


@secrets.command("list")
@click.option("--site", help="Only this site's secrets.", shell_complete=complete_sites)
@listed
@pass_settings
def list_secrets(settings: Settings, watch: bool, site: str | None) -> None:
    """List the names of secrets; values are never shown."""
    listing = TableListing(
        key="secrets",
        columns=(
            Column("SECRET", lambda secret: secret["name"]),
            Column("SITE", lambda secret: secret["site"]),
            Column("VERSION", lambda secret: str(secret["version"]), wide=True),
            Column("AGE", lambda secret: age(secret["updated_at"], datetime.now(UTC))),
            Column("SET BY", lambda secret: secret["updated_by"]),
        ),
        identity=lambda secret: f"{secret['site']}/{secret['name']}",
        empty="There is no secret yet. Set one:  homeport secrets set SITE NAME",
    )
    client = Client(settings.url)
    show_list(settings, listing, client, "/api/v1/secrets", watch=watch, site=site)


@secrets.command("remove")
@NAMED
@connected
@pass_settings
def remove(settings: Settings, named: tuple[str, ...]) -> None:
    """Remove a secret of a site (the only one, if none is named) that no deployment uses."""
    client = Client(settings.url)
    site, name = _site_and_name(client, named)
    client.delete(f"/api/v1/sites/{site}/secrets/{name}")
    done(f"removed secret {name} of site {site}")


@secrets.command("rotate-key")
@connected
@formatted
@pass_settings
def rotate_key(settings: Settings) -> None:
    """Encrypt every secret with a new key, and delete the old one.

    This changes central's key; with --url of a site, the site's. Nothing restarts.
    """
    found = Client(settings.url).post("/api/v1/secrets/rotate-key", {})
    if settings.is_data:
        print_data(settings, found)
        return
    done(f"{_counted(found['secrets'])} sealed with key {found['key_number']}; older keys are deleted")
    if found["unreadable"]:
        click.echo(f"  {_counted(found['unreadable'])} cannot be opened by any key here, before as after: set again.")


def _site_and_name(client: Client, named: tuple[str, ...]) -> tuple[str, str]:
    if len(named) > 2:
        raise click.UsageError(f'"{named[2]}" is one word too many: write SITE NAME.')
    site = named[0] if len(named) == 2 else only_site(client, how="SITE NAME")
    return site, named[-1]


def _counted(number: int) -> str:
    return "1 secret" if number == 1 else f"{number} secrets"


def _value(from_file: Path | None) -> str:
    if from_file is not None:
        content = _read_file(from_file)
    elif sys.stdin.isatty():
        return str(click.prompt("Value", hide_input=True, confirmation_prompt="Repeat the value", err=True))
    else:
        content = sys.stdin.buffer.read(VALUE_BYTES_MAX + 2)
    if len(content) > VALUE_BYTES_MAX + 1:
        raise TooLarge(f"A secret has at most {VALUE_BYTES_MAX // 1024} KiB.")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "The value is not text in UTF-8.", hint="Encode binary content first, for example with base64."
        ) from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidInput(
            "The value is empty.", hint="Pipe it in, use --from-file, or let the command prompt for it."
        )
    return text


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(VALUE_BYTES_MAX + 2)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.") from error
