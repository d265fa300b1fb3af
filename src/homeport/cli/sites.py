"""`homeport sites`: the places that follow the deployments repository."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age
from homeport.cli.client import Client
from homeport.cli.completing import complete_sites
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, print_data, print_facts, show


@click.group()
def sites() -> None:
    """List and show sites."""


@sites.command("list")
@listed
@pass_settings
def list_sites(settings: Settings, watch: bool) -> None:
    """List the sites."""
    listing = Listing(
        key="sites",
        columns=(
            Column("SITE", lambda site: site["name"]),
            Column("REACHABLE", _reachable),
            Column("NODES", lambda site: f"{site['nodes_live']}/{site['nodes']}"),
            Column("SEEN", lambda site: age(site["last_seen"], datetime.now(UTC))),
            Column("COMMIT", lambda site: (site["applied_commit"] or "-")[:12]),
            Column("VERSION", lambda site: site["software_version"], wide=True),
            Column("DEPLOYMENTS", _counts),
            Column("NOTE", lambda site: site["problem"] or ""),
        ),
        identity=lambda site: site["name"],
        empty="No site has joined yet. Start one:  homeport site --name NAME --central URL --git URL",
    )
    client = Client(settings.url)
    show(settings, listing, lambda: client.get("/api/v1/sites"), watch=watch)


@sites.command("show")
@click.argument("name", shell_complete=complete_sites)
@connected
@formatted
@pass_settings
def show_site(settings: Settings, name: str) -> None:
    """Show one site."""
    site = Client(settings.url).get(f"/api/v1/sites/{name}")
    if settings.is_data:
        print_data(settings, site)
        return
    now = datetime.now(UTC)
    print_facts(
        [
            ("site", site["name"]),
            ("reachable", _reachable(site)),
            ("last seen", age(site["last_seen"], now)),
            ("joined", age(site["joined_at"], now)),
            ("commit", site["applied_commit"] or "-"),
            ("nodes", f"{site['nodes_live']} of {site['nodes']} live"),
            ("deployments", _counts(site)),
            ("version", site["software_version"]),
            ("note", site["problem"] or ""),
        ]
    )


def _reachable(site: Item) -> str:
    return "yes" if site["reachable"] else "no"


def _counts(site: Item) -> str:
    return ", ".join(f"{count} {state}" for state, count in site["deployments"].items() if count) or "-"
