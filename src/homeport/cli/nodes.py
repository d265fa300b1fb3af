"""`homeport nodes`: the machines, what they can do and when they were last heard."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age, size
from homeport.cli.client import Client
from homeport.cli.completing import complete_nodes, complete_sites
from homeport.cli.draining import wait_until_empty
from homeport.cli.identity import approve_identity, show_identities, site_option
from homeport.cli.joining import print_line, valid_option
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, done, print_data, print_facts, show


@click.group()
def nodes() -> None:
    """List, show, join, drain and remove nodes."""


@nodes.command("list")
@click.option("--site", help="Only this site's nodes.", shell_complete=complete_sites)
@listed
@pass_settings
def list_nodes(settings: Settings, watch: bool, site: str | None) -> None:
    """List the nodes."""
    listing = Listing(
        key="nodes",
        columns=(
            Column("NODE", lambda node: node["id"]),
            Column("SITE", lambda node: node["site"]),
            Column("STATE", state_text),
            Column("SEEN", lambda node: age(node["last_seen"], datetime.now(UTC))),
            Column("CORES", lambda node: str(node["capabilities"]["cpu_cores"])),
            Column("MEMORY", lambda node: size(node["capabilities"]["memory_bytes"])),
            Column("ENGINE", _engine),
            Column("HOSTNAME", lambda node: node["hostname"], wide=True),
            Column("DISK FREE", lambda node: size(node["capabilities"]["disk_free_bytes"]), wide=True),
            Column("VERSION", lambda node: node["software_version"], wide=True),
            Column("LABELS", _labels, wide=True),
            Column("DRAINED FOR", lambda node: node["drain"] or "", wide=True),
            Column("SYSTEM", _system),
        ),
        identity=lambda node: node["id"],
        empty="No node has joined yet. Start one:  homeport node --site HOST:PORT",
    )
    client = Client(settings.url)
    show(settings, listing, lambda: client.get("/api/v1/nodes", site=site), watch=watch)


@nodes.command("show")
@click.argument("node", shell_complete=complete_nodes)
@connected
@formatted
@pass_settings
def show_node(settings: Settings, node: str) -> None:
    """Show one node."""
    found = Client(settings.url).get(f"/api/v1/nodes/{node}")
    if settings.is_data:
        print_data(settings, found)
        return
    now = datetime.now(UTC)
    able = found["capabilities"]
    print_facts(
        [
            ("node", found["id"]),
            ("hostname", found["hostname"]),
            ("site", found["site"]),
            ("state", f"{state_text(found)}, last seen {age(found['last_seen'], now)} ago"),
            ("drained", found["drain"] or ""),
            ("joined", f"{age(found['registered_at'], now)} ago"),
            ("system", _system(found)),
            ("cores", str(able["cpu_cores"])),
            ("memory", size(able["memory_bytes"])),
            ("disk", f"{size(able['disk_free_bytes'])} free of {size(able['disk_bytes'])}"),
            ("engine", _engine(found)),
            ("runs", ", ".join(able["profile_types"]) or "nothing"),
            ("gpus", ", ".join(f"{gpu['model']} {size(gpu['memory_bytes'])}" for gpu in able["gpus"]) or "none"),
            ("labels", _labels(found) or "none"),
            ("version", found["software_version"]),
        ]
    )


@nodes.command("remove")
@click.argument("node", shell_complete=complete_nodes)
@connected
@pass_settings
def remove(settings: Settings, node: str) -> None:
    """Forget a node. It stays away until its process is started again; its containers keep running."""
    Client(settings.url).delete(f"/api/v1/nodes/{node}")
    done(f"removed node {node}")


@nodes.command("drain")
@click.argument("node", shell_complete=complete_nodes)
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
@click.option("--wait/--no-wait", default=False, help="Stay until the node is empty [no-wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@pass_settings
@click.pass_context
def drain(ctx: click.Context, settings: Settings, /, *, node: str, reason: str, wait: bool, timeout: float) -> None:
    """Empty a node, for maintenance say. What it runs moves to other nodes where that can be, healthy there before
    it is taken away here; what runs on every node leaves. Nothing new comes until  homeport nodes undrain ."""
    client = Client(settings.url)
    found = client.post(f"/api/v1/nodes/{node}/drain", {"reason": reason})
    done(f"node {found['id']} takes nothing new: {found['drain']}")
    if wait:
        ctx.exit(wait_until_empty(client, found, timeout_seconds=timeout))


@nodes.command("undrain")
@click.argument("node", shell_complete=complete_nodes)
@connected
@pass_settings
def undrain(settings: Settings, node: str) -> None:
    """Let a drained node take work again. What has moved away stays where it is."""
    found = Client(settings.url).delete(f"/api/v1/nodes/{node}/drain")
    done(f"node {found['id']} takes work again")


@nodes.command("join-command")
@click.argument("site", shell_complete=complete_sites)
@valid_option
@connected
@formatted
@pass_settings
def join_command(settings: Settings, site: str, valid: float) -> None:
    """Print the one line that joins a new node to a site, with a token that works once. The site must be connected to
    central, or be asked itself with --url."""
    path = f"/api/v1/sites/{site}/nodes/join-token"
    made = Client(settings.url).post(path, {"lifetime_seconds": valid * 60})
    line = ["node", "--site", made["nodes"] or "HOST:PORT", "--join-url", made["api"] or settings.url]
    print_line(settings, [*line, "--join", made["token"], "--pin", made["pin"]], made)


@nodes.command("pending")
@site_option
@listed
@pass_settings
def pending(settings: Settings, watch: bool, site: str | None) -> None:
    """List the nodes that wait for approval: of a site with --site, or ask the site itself with --url."""
    show_identities(settings, watch=watch, kinds=("node",), standing="pending", site=site)


@nodes.command("approve")
@click.argument("node")
@click.option("--key", metavar="sha256:HEX", help="Approve it only if it has this key; the new machine shows it.")
@site_option
@connected
@pass_settings
def approve(settings: Settings, node: str, key: str | None, site: str | None) -> None:
    """Let a waiting node in: name its site with --site, or ask the site itself with --url."""
    approve_identity(settings, node, key, site)


def state_text(node: Item) -> str:
    """A node that is drained and cannot be heard is both."""
    if not node["drain"]:
        return str(node["liveness"])
    return "drained" if node["liveness"] == "live" else f"{node['liveness']}, drained"


def _labels(node: Item) -> str:
    return ", ".join(f"{name}={value}" for name, value in node["labels"].items())


def _engine(node: Item) -> str:
    able = node["capabilities"]
    return f"{able['engine']} {able['engine_version']}".strip() or "none"


def _system(node: Item) -> str:
    return f"{node['capabilities']['os']} {node['capabilities']['architecture']}"
