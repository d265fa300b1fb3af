"""`homeport sites`: the places that follow the deployments repository."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age
from homeport.cli.client import Client
from homeport.cli.completing import complete_sites
from homeport.cli.holding import hold_end, hold_text
from homeport.cli.identity import approve_identity, show_identities
from homeport.cli.joining import print_line, valid_option
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, done, print_data, print_facts, show
from homeport.errors import InvalidInput


@click.group()
def sites() -> None:
    """List, show, label, join and hold sites."""


@sites.command("list")
@click.option("-l", "--selector", metavar="SELECTOR", help="Only those with these labels: region=eu,tier!=test.")
@listed
@pass_settings
def list_sites(settings: Settings, watch: bool, selector: str | None) -> None:
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
            Column("LABELS", _labels),
            Column("DEPLOYMENTS", _counts),
            Column("NOTE", lambda site: site["problem"] or _held(site)),
        ),
        identity=lambda site: site["name"],
        empty="No site has joined yet. Start one:  homeport site --name NAME --central URL --git URL",
    )
    client = Client(settings.url)
    show(settings, listing, lambda: client.get("/api/v1/sites", selector=selector), watch=watch)


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
            ("labels", _labels(site)),
            ("deployments", _counts(site)),
            ("version", site["software_version"]),
            ("note", site["problem"] or ""),
            *(("held", hold_text(hold)) for hold in site["holds"]),
        ]
    )


@sites.command("hold")
@click.argument("name", shell_complete=complete_sites)
@click.option("--deployment", help="Only this one, by name or id; the whole site when left out.")
@click.option("--reason", required=True, metavar="TEXT", help="Why, for whoever waits for the update.")
@click.option("--for", "lasts", metavar="TIME", help="How long: 90m, 8h, 2d [8h].")
@click.option("--until", metavar="MOMENT", help="Instead of --for: 2030-01-31T18:00; UTC unless it says otherwise.")
@connected
@formatted
@pass_settings
def hold(
    settings: Settings,
    /,
    *,
    name: str,
    deployment: str | None,
    reason: str,
    lasts: str | None,
    until: str | None,
) -> None:
    """Leave a site as it is for a while. Newer revisions and removals wait, repairs and work under way go on. It ends
    by itself. Ask the site itself with --url while central is gone."""
    body = {"reason": reason, "deployment": deployment, **hold_end(lasts, until)}
    made = Client(settings.url).post(f"/api/v1/sites/{name}/holds", body)
    if settings.is_data:
        print_data(settings, made)
        return
    done(f"{deployment or 'site'}{'@' if deployment else ' '}{name} is {hold_text(made)}")


@sites.command("release")
@click.argument("name", shell_complete=complete_sites)
@click.option("--deployment", help="Only this one, by name or id; the hold on the whole site when left out.")
@connected
@pass_settings
def release(settings: Settings, name: str, deployment: str | None) -> None:
    """End a hold: what has waited is done now."""
    left = Client(settings.url).delete(f"/api/v1/sites/{name}/holds", deployment=deployment)
    done(f"{deployment or 'site'}{'@' if deployment else ' '}{name} is free again")
    for other in left["holds"]:
        click.echo(f"  still {hold_text(other)}")


@sites.command("label")
@click.argument("name", shell_complete=complete_sites)
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
@connected
@formatted
@pass_settings
def label(settings: Settings, name: str, changes: tuple[str, ...]) -> None:
    """Set labels of a site, or remove them: region=eu tier-

    They are kept in its marker in Git. What its group has then comes to it; what it has stays.
    """
    site = Client(settings.url).patch(f"/api/v1/sites/{name}", {"labels": parse_labels(changes)})
    if settings.is_data:
        print_data(settings, site)
    else:
        done(f"{site['name']}   {_labels(site)}")


def parse_labels(changes: tuple[str, ...]) -> dict[str, str | None]:
    """`region=eu` sets one, `tier-` removes one."""
    labels: dict[str, str | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals and not change.endswith("-"):
            raise click.UsageError(f'"{change}" is no label: write KEY=VALUE, or KEY- to remove it.')
        labels[key if equals else change.removesuffix("-")] = value if equals else None
    return labels


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


def _held(site: Item) -> str:
    return hold_text(site["holds"][0]) if site["holds"] else ""


def _reachable(site: Item) -> str:
    return "yes" if site["reachable"] else "no"


def _labels(site: Item) -> str:
    return ",".join(f"{key}={value}" for key, value in site.get("labels", {}).items()) or "-"


def _counts(site: Item) -> str:
    return ", ".join(f"{count} {state}" for state, count in site["deployments"].items() if count) or "-"
