"""`homeport sites`: the sites that follow the deployments repository."""

from datetime import UTC, datetime

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_sites
from homeport.cli.commands.machines.identity import approve_identity, show_identities
from homeport.cli.join_lines import print_line, valid_option
from homeport.cli.lazy import Group
from homeport.cli.options import FILTER, Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.holds import hold_end, hold_text
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, print_facts, show, show_list
from homeport.cli.terminal.protocols import protocol_text
from homeport.errors import InvalidInput, NotFound


@click.group(cls=Group)
def sites() -> None:
    """List, show, label, join and hold sites."""


@sites.command("list")
@FILTER
@click.option("-l", "--selector", metavar="SELECTOR", help="Only those with these labels: region=eu,tier!=test.")
@listed
@pass_settings
def list_sites(settings: Settings, /, *, watch: bool, **only: str | None) -> None:
    """List the sites."""
    listing = TableListing(
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
        empty="No site has joined yet. The line to join with:  homeport sites join-command NAME",
    )
    client = Client(settings.url)
    show_list(settings, listing, client, "/api/v1/sites", watch=watch, **only)


@sites.command("plan")
@listed
@pass_settings
def plan_site(settings: Settings, watch: bool) -> None:
    """Show what a site would do next. Use the site's own URL: --url http://SITE:8081."""
    listing = TableListing(
        key="moves",
        columns=(
            Column("ACTION", lambda move: move["action"]),
            Column("DEPLOYMENT", lambda move: move["name"] or move["deployment_id"][:8]),
            Column("NODE", lambda move: move["node_id"] or "-"),
            Column("STATUS", lambda move: move["status"]),
            Column("ID", lambda move: move["deployment_id"], wide=True),
            Column("WHY", lambda move: move["why"]),
        ),
        identity=lambda move: f"{move['deployment_id']}/{move['node_id']}/{move['trigger']}",
        empty="Nothing is deployed here, and nothing is wanted.",
    )
    client = Client(settings.url)
    show(settings, listing, lambda: client.get("/api/v1/plan"), watch=watch)


@sites.command("show")
@click.argument("name", shell_complete=complete_sites)
@connected
@formatted
@pass_settings
def show_site(settings: Settings, name: str) -> None:
    """Show one site."""
    client = Client(settings.url)
    site = client.get(f"/api/v1/sites/{name}")
    if settings.is_data:
        print_data(settings, site)
        return
    now, devices = datetime.now(UTC), _devices_of(client, site)
    print_facts(
        [
            ("site", site["name"]),
            ("reachable", _reachable(site)),
            ("last seen", age(site["last_seen"], now)),
            ("joined", age(site["joined_at"], now)),
            ("commit", site["applied_commit"] or "-"),
            ("devices", devices) if devices else ("nodes", f"{site['nodes_live']} of {site['nodes']} live"),
            ("labels", _labels(site)),
            ("deployments", _counts(site)),
            ("version", site["software_version"]),
            ("protocol", protocol_text(site)),
            ("note", site["problem"] or ""),
            *(("held", hold_text(hold)) for hold in site["holds"]),
        ]
    )


def _devices_of(client: Client, site: Json) -> str:
    """Of a Margo client, which has no nodes; "" for other sites."""
    if site["nodes"]:
        return ""
    try:
        count = len(client.get(f"/api/v1/sites/{site['name']}/devices")["items"])
    except NotFound:  # a site's own API has none
        return ""
    return f"{count} of a Margo client; see  homeport sites devices {site['name']}" if count else ""


@sites.command("devices")
@click.argument("name", shell_complete=complete_sites)
@click.argument("device", required=False)
@click.option("--app", metavar="APP[@VERSION]", help="Which of them may take this app, and why others may not.")
@connected
@formatted
@pass_settings
def show_devices(settings: Settings, name: str, device: str | None, app: str | None) -> None:
    """List the devices of a site that is a Margo client, or show one of them."""
    from homeport.cli.local.devices import print_device, print_devices, print_matches  # noqa: PLC0415 - start-up time

    client = Client(settings.url)
    if app is not None:
        if device is not None:
            raise click.UsageError("--app is about all devices of a site: leave out the device.")
        app_name, _, version = app.partition("@")
        answer = client.get(f"/api/v1/sites/{name}/devices/matches", app_name=app_name, app_version=version or None)
        print_matches(settings, answer)
        return
    answer = client.get(f"/api/v1/sites/{name}/devices")
    if device is None:
        print_devices(settings, answer)
        return
    print_device(settings, answer, device)


@sites.command("remove")
@click.argument("name", shell_complete=complete_sites)
@click.option("--force", is_flag=True, help="Also where something is deployed there, or the site is in reach.")
@connected
@pass_settings
def remove_site(settings: Settings, name: str, force: bool) -> None:
    """Remove a site that was closed, or mistyped, and its identity. Its workloads keep running."""
    removed = Client(settings.url).delete(f"/api/v1/sites/{name}", force="true" if force else None)
    done(f"site {name} removed" + (", and its identity with it" if removed and removed["identity_removed"] else ""))


@sites.command("hold")
@click.argument("name", shell_complete=complete_sites)
@click.option("--deployment", help="Only this one, by name or id; the whole site when left out.")
@click.option("--reason", required=True, metavar="TEXT", help="The reason, shown to operators.")
@click.option("--for", "lasts", metavar="TIME", help="How long: 90m, 8h, 2d [8h].")
@click.option(
    "--until", metavar="MOMENT", help="Instead of --for: 2030-01-31T18:00; UTC unless a time zone is given."
)
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
    """Put a site on hold for a while. Newer revisions and removals wait, repairs and work under way continue. It ends
    by itself. While central is unreachable, use the site's own --url."""
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
    """End a hold: waiting changes are applied now."""
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

    They are stored in its marker in Git. The releases of its new groups are deployed; what it has stays.
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
            raise click.UsageError(f'"{change}" is not a valid label: write KEY=VALUE, or KEY- to remove it.')
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
    """Print the one line that joins a new site, with a one-time token."""
    url = (central_url or settings.url).rstrip("/")
    if not url.startswith("https://"):
        raise InvalidInput(
            f"A site joins over https, and {url} is not.",
            hint="Start it again with  --http 0.0.0.0:8080  (on loopback:  --tls ), and give its https:// address "
            "with --central.",
        )
    made = Client(settings.url).post(f"/api/v1/sites/{name}/join-token", {"lifetime_seconds": valid * 60})
    line = ["site", "--name", name, "--central", url, "--join", made["token"], "--pin", made["pin"]]
    print_line(settings, [*line, *(("--git", made["git_url"]) if made["git_url"] else ())], made)


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
    """Approve a pending site."""
    approve_identity(settings, name, key)


def _held(site: Item) -> str:
    return hold_text(site["holds"][0]) if site["holds"] else ""


def _reachable(site: Item) -> str:
    return "yes" if site["reachable"] else "no"


def _labels(site: Item) -> str:
    return ",".join(f"{key}={value}" for key, value in site.get("labels", {}).items()) or "-"


def _counts(site: Item) -> str:
    return ", ".join(f"{count} {state}" for state, count in site["deployments"].items() if count) or "-"
