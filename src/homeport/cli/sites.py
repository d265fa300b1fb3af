"""`homeport sites`: the places that follow the deployments repository."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age
from homeport.cli.client import Client
from homeport.cli.completing import complete_sites
from homeport.cli.identity import approve_identity, show_identities
from homeport.cli.joining import print_line, valid_option
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, print_data, print_facts, show
from homeport.errors import InvalidInput


@click.group()
def sites() -> None:
    """List, show and join sites."""


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


@sites.command("join-command")
@click.argument("name")
@click.option("--central", "central_url", metavar="URL", help="Central's address as the new machine sees it [--url].")
@valid_option
@connected
@formatted
@pass_settings
def join_command(settings: Settings, name: str, central_url: str | None, valid: float) -> None:
    """Print the one line that joins a new site, with a token that works once."""
    url = (central_url or settings.url).rstrip("/")
    if not url.startswith("https://"):
        raise InvalidInput(
            f"A site joins over https, and {url} is not.",
            hint="Start central with --tls, and give its https:// address with --central.",
        )
    made = Client(settings.url).post(f"/api/v1/sites/{name}/join-token", {"lifetime_seconds": valid * 60})
    line = ["site", "--name", name, "--central", url, "--join", made["token"], "--pin", made["pin"]]
    print_line(settings, [*line, "--git", made["git_url"]], made)


@sites.command("pending")
@listed
@pass_settings
def pending(settings: Settings, watch: bool) -> None:
    """List the sites that wait for approval."""
    show_identities(settings, watch=watch, kinds=("client",), standing="pending")


@sites.command("approve")
@click.argument("name")
@click.option("--key", metavar="sha256:HEX", help="Approve it only if it has this key; the new machine shows it.")
@connected
@pass_settings
def approve(settings: Settings, name: str, key: str | None) -> None:
    """Let a waiting site in."""
    approve_identity(settings, name, key)


def _reachable(site: Item) -> str:
    return "yes" if site["reachable"] else "no"


def _counts(site: Item) -> str:
    return ", ".join(f"{count} {state}" for state, count in site["deployments"].items() if count) or "-"
