"""`homeport events`: the one log of what has happened, in order."""

from datetime import datetime
from pathlib import Path

import click

from homeport.cli.ages import clock
from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_deployments, complete_sites
from homeport.cli.exporting import export_lines
from homeport.cli.feed import Feed
from homeport.cli.finding import find_deployment
from homeport.cli.moments import SINCE, UNTIL
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.output import print_data
from homeport.errors import InvalidInput

EXPORT_HELP = "Write them to this file as lines of JSON, or to stdout with -."


@click.command()
@click.option("-f", "--follow", "-w", "--watch", "follow", is_flag=True, help="Go on with what happens next.")
@click.option("--after", type=int, default=0, show_default=True, help="Only events with a higher id than this.")
@click.option("--site", help="Only this site's.", shell_complete=complete_sites)
@click.option("--deployment", help="Only this deployment's.", shell_complete=complete_deployments)
@click.option("--export", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=EXPORT_HELP)
@SINCE
@UNTIL
@connected
@formatted
@pass_settings
def events(
    settings: Settings,
    /,
    *,
    follow: bool,
    after: int,
    site: str | None,
    deployment: str | None,
    export: Path | None,
    **times: datetime | None,
) -> None:
    """Print what has happened, follow it, or export it."""
    client = Client(settings.url)
    only = find_deployment(client, deployment)["id"] if deployment else None
    if export is not None:
        if follow:
            raise InvalidInput("What is exported ends.", hint="Leave out --follow, or --export.")
        lines = client.lines("/api/v1/events/export", after=after, site=site, deployment=only, **times)
        export_lines(lines, export, "events")
        return
    if any(times.values()):
        raise InvalidInput("--since and --until are for an export.", hint="Add  --export -  to print it.")
    last = client.get("/api/v1/overview")["last_event_id"]
    if not follow and after >= last:
        return
    try:
        for event in Feed(client, "/api/v1/events", after=after):
            wanted = site in {None, event["site"]} and only in {None, event["deployment_id"]}
            if wanted and event["id"] > after:
                print_event(settings, event)
            if not follow and event["id"] >= last:
                return
    except KeyboardInterrupt:
        return


def print_event(settings: Settings, event: Json) -> None:
    if settings.is_data:
        print_data(settings, event, compact=True)
        return
    place = " / ".join(part for part in (event["site"], event["node_id"]) if part)
    line = f"{clock(event['at'])}   {event['kind']:<19}   {place:<20}   {event['message']}"
    click.echo(f"{event['id']:>6}   {line}" if settings.output == "wide" else line)
