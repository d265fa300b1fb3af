"""`homeport status`: the whole fleet on one page, what is wrong first."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age
from homeport.cli.client import Client, Json
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.output import Column, print_data, print_facts, print_table

SHOWN_MAX = 20
"""Lines of what is wrong; a page is read, a list of a thousand is searched."""


@click.command()
@connected
@formatted
@pass_settings
def status(settings: Settings) -> None:
    """Show how the fleet is: sites, nodes, deployments, and what fails.

    Against a site it shows that site, with or without central.
    """
    client = Client(settings.url)
    overview = client.get("/api/v1/overview")
    failing = client.get("/api/v1/deployments", state="FAILED")["deployments"]
    silent = [site for site in overview["sites"] if not site["reachable"]]
    if settings.is_data:
        print_data(settings, {**overview, "failing": failing})
        return
    print_facts(
        [
            ("sites", _of(len(overview["sites"]) - len(silent), len(overview["sites"]), "in reach")),
            ("nodes", _nodes(overview["nodes"])),
            ("deployments", _counts(overview["deployments"])),
            ("commit", (overview["commit"] or "-")[:12]),
        ]
    )
    now = datetime.now(UTC)
    wrong = [
        *({"what": f"site {site['name']}", "why": f"silent for {age(site['last_seen'], now)}"} for site in silent),
        *({"what": f"site {site['name']}", "why": site["problem"]} for site in overview["sites"] if site["problem"]),
        *(
            {
                "what": f"node {node['id']}@{node['site']}",
                "why": f"{node['liveness']} for {age(node['last_seen'], now)}",
            }
            for node in overview["nodes"]
            if node["liveness"] != "live"
        ),
        *({"what": f"{item['name']}@{item['site']}", "why": item["note"]} for item in failing),
    ]
    click.echo()
    if not wrong:
        click.echo("All is well.")
        return
    columns = (Column("WHAT", lambda line: line["what"]), Column("WHY", lambda line: line["why"]))
    print_table(settings, columns, wrong[:SHOWN_MAX])
    if len(wrong) > SHOWN_MAX:
        click.echo(f"… and {len(wrong) - SHOWN_MAX} more. See  homeport deployments list --state FAILED")


def _nodes(nodes: list[Json]) -> str:
    return _of(sum(node["liveness"] == "live" for node in nodes), len(nodes), "live")


def _of(good: int, count: int, word: str) -> str:
    return f"{good} of {count} {word}" if count else "none yet"


def _counts(states: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
