"""`homeport events`: the one log of what has happened, in order."""

import click

from homeport.cli.ages import clock
from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_deployments, complete_sites
from homeport.cli.feed import Feed
from homeport.cli.finding import find_deployment
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.output import print_data


@click.command()
@click.option("-f", "--follow", "-w", "--watch", "follow", is_flag=True, help="Go on with what happens next.")
@click.option("--after", type=int, default=0, show_default=True, help="Only events with a higher id than this.")
@click.option("--site", help="Only this site's.", shell_complete=complete_sites)
@click.option("--deployment", help="Only this deployment's.", shell_complete=complete_deployments)
@connected
@formatted
@pass_settings
def events(settings: Settings, follow: bool, after: int, site: str | None, deployment: str | None) -> None:
    """Print what has happened, and follow it."""
    client = Client(settings.url)
    only = find_deployment(client, deployment)["id"] if deployment else None
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
