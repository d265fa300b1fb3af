"""`homeport version`."""

import click

from homeport import __version__
from homeport.cli.options import Settings, formatted, pass_settings


@click.command()
@formatted
@pass_settings
def version(settings: Settings) -> None:
    """Print the version."""
    if settings.is_data:
        from homeport.cli.terminal.output import print_data  # noqa: PLC0415 - json and yaml are not needed otherwise

        print_data(settings, {"version": __version__})
    else:
        click.echo(f"homeport {__version__}")
