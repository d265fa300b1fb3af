"""`homeport usage`: who used how much of which model."""

import click

from homeport.cli.api.client import Client
from homeport.cli.options import Settings, listed, pass_settings
from homeport.cli.terminal.output import Column, TableListing, show

LISTING = TableListing(
    key="usage",
    columns=(
        Column("KEY", lambda item: item["name"]),
        Column("SITE", lambda item: item.get("site") or "", wide=True),
        Column("DAY", lambda item: item["day"]),
        Column("MODEL", lambda item: item["model"]),
        Column("REQUESTS", lambda item: f"{item['requests']:,}"),
        Column("TOKENS IN", lambda item: f"{item['tokens_in']:,}"),
        Column("TOKENS OUT", lambda item: f"{item['tokens_out']:,}"),
    ),
    identity=lambda item: item["key"],
    empty="No model has been used yet. Try  homeport chat hello",
)


@click.command()
@click.option("--days", default=30, show_default=True, type=click.IntRange(1, 366), help="How far back.")
@listed
@pass_settings
def usage(settings: Settings, /, *, watch: bool, days: int) -> None:
    """Show tokens and requests by key, day and model.

    At central, those that sites have answered by themselves, as for jobs, are rows of their own: -o wide names the
    site.
    """
    client = Client(settings.url)
    show(settings, LISTING, lambda: client.get("/v2/usage", days=days), watch=watch)
