"""`homeport events`: the event log, in order."""

import json
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_deployments, complete_sites
from homeport.cli.api.export import export_lines
from homeport.cli.api.feed import Feed
from homeport.cli.api.finding import find_deployment
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.ages import clock
from homeport.cli.terminal.moments import SINCE, UNTIL
from homeport.cli.terminal.output import echo_wrapped, print_data, printable
from homeport.errors import InvalidInput

EXPORT_HELP = "Write them to this file as lines of JSON, or to stdout with -."


@click.command()
@click.option("-f", "--follow", "-w", "--watch", "follow", is_flag=True, help="Follow new events.")
@click.option("--after", type=int, default=0, show_default=True, help="Only events with a higher id than this.")
@click.option("--site", help="Only this site's.", shell_complete=complete_sites)
@click.option("--deployment", help="Only this deployment's.", shell_complete=complete_deployments)
@click.option("-n", "--tail", type=click.IntRange(min=0), metavar="N", help="Only the newest N of them.")
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
    tail: int | None,
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
    if follow and times.get("until"):
        raise InvalidInput("With --until there is nothing to follow.", hint="Leave out --until, or --follow.")
    if not follow or times.get("since") or tail is not None:
        after = _print_between(settings, client, tail, after=after, site=site, deployment=only, **times)
    if not follow:
        return
    subject = None if only is None else f"deployment/{only}"
    try:
        for event in Feed(client, "/api/v1/events", after=after, site=site, subject=subject):
            # The previous server version does not support these filters.
            if site in {None, event["site"]} and only in {None, event["deployment_id"]} and event["id"] > after:
                print_event(settings, event)
    except KeyboardInterrupt:
        return


def _print_between(
    settings: Settings, client: Client, tail: int | None, *, after: int, **query: str | datetime | None
) -> int:
    """Prints the events of a time range, or the newest of them, and returns the id of the last one."""
    lines: Iterable[bytes] = client.lines("/api/v1/events/export", after=after, **query)
    for line in lines if tail is None else deque(lines, maxlen=tail):
        event = json.loads(line)
        after = event["id"]
        print_event(settings, event)
    return after


def print_event(settings: Settings, event: Json) -> None:
    if settings.is_data:
        print_data(settings, event, compact=True)
        return
    place = " / ".join(part for part in (event["site"], event["node_id"]) if part)
    head = f"{clock(event['at'])}   {event['kind']:<19}   {place:<20}   "
    echo_wrapped(f"{event['id']:>6}   {head}" if settings.output == "wide" else head, printable(event["message"]))
