"""`homeport token`: the token that commands send to the server, for curl and other programs."""

from pathlib import Path

import click

from homeport.adapters.local_access import BELOW_DATA, KeyKind, newest
from homeport.cli.api.client import Client
from homeport.cli.options import Settings, connected, pass_settings
from homeport.errors import NotFound, Refused


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data folder of the role on this machine, for one that another user runs.",
)
@connected
@pass_settings
def token(settings: Settings, data: Path | None) -> None:
    """Print the access token that commands send to Homeport.

    On this machine it is the local key, which is valid until Homeport stops:

      curl -H "Authorization: Bearer $(homeport token)" http://127.0.0.1:8080/api/v1/overview
    """
    text = Client(settings.url).token() if data is None else _kept_in(data)
    if not text:
        raise Refused(
            f"There is no access token for {settings.url} here.",
            hint="Run the command as the user who started Homeport, or log in:  homeport login URL",
        )
    click.echo(text)


def _kept_in(data: Path) -> str:
    """`homeport up` stores central's data in a sub-folder."""
    for folder in (data / BELOW_DATA, data / "central" / BELOW_DATA):
        if key := newest(folder, KeyKind.PERSON):
            return key
    raise NotFound(f"No role runs with the data folder {data}.", hint="Name the folder that it was started with.")
