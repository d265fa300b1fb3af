"""`homeport nodes`: the machines, their capabilities and their last heartbeat."""

from datetime import UTC, datetime
from functools import partial

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_nodes, complete_sites
from homeport.cli.api.finding import only_site, site_of_nodes
from homeport.cli.commands.machines.identity import approve_identity, show_identities, site_option
from homeport.cli.commands.machines.sites import parse_labels
from homeport.cli.join_lines import print_line, valid_option
from homeport.cli.lazy import Group, MayBeEmpty
from homeport.cli.options import FILTER, Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age, duration, parse, size
from homeport.cli.terminal.draining import wait_until_empty
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, print_facts, show_list
from homeport.cli.terminal.protocols import protocol_text
from homeport.core.node.tuning import LOG_LEVELS
from homeport.core.values.durations import duration_text, seconds_of
from homeport.errors import NotFound, Refused


@click.group(cls=Group)
def nodes() -> None:
    """List, show, join, drain and remove nodes."""


@nodes.command("list")
@FILTER
@click.option("--site", help="Only this site's nodes.", shell_complete=complete_sites)
@listed
@pass_settings
def list_nodes(settings: Settings, /, *, watch: bool, **only: str | None) -> None:
    """List the nodes."""
    listing = TableListing(
        key="nodes",
        columns=(
            Column("NODE", lambda node: node["id"]),
            Column("SITE", lambda node: node["site"]),
            Column("STATE", state_text, vital=True),
            Column("SEEN", lambda node: age(node["last_seen"], datetime.now(UTC))),
            Column("CORES", lambda node: str(node["capabilities"]["cpu_cores"])),
            Column("MEMORY", lambda node: size(node["capabilities"]["memory_bytes"])),
            Column("ENGINE", _engine),
            Column("HOSTNAME", lambda node: node["hostname"], wide=True),
            Column("DISK FREE", lambda node: size(node["capabilities"]["disk_free_bytes"]), wide=True),
            Column("VERSION", lambda node: node["software_version"], wide=True),
            Column("LABELS", _labels, wide=True),
            Column("DRAINED FOR", lambda node: node["drain"] or "", wide=True),
            Column("PROBLEM", lambda node: node.get("problem") or ""),
            Column("SYSTEM", _system),
        ),
        identity=lambda node: node["id"],
        empty="No node has joined yet. Start one:  homeport node --site HOST:PORT\n"
        "Devices of Margo clients:  homeport sites devices SITE",
    )
    client = Client(settings.url)
    show_list(settings, listing, client, "/api/v1/nodes", watch=watch, **only)


@nodes.command("volumes")
@click.argument("node", shell_complete=complete_nodes)
@connected
@formatted
@pass_settings
def list_volumes(settings: Settings, node: str) -> None:
    """List the data volumes of a node.

    Data belongs to a deployment's name and outlives it: what a deleted deployment left is marked
    as kept. The next deployment of that name gets it again;  homeport deployments delete
    --remove-data  removes it.
    """
    listing = TableListing(
        key="volumes",
        columns=(
            Column("OF", lambda volume: volume["owner"]),
            Column("VOLUME", lambda volume: volume["name"]),
            Column("STATE", lambda volume: "in use" if volume["used"] else "kept", vital=True),
            Column("NAME AT THE ENGINE", lambda volume: volume["volume"], wide=True),
        ),
        identity=lambda volume: volume["volume"],
        empty=f"Node {node} holds no data of deployments.",
    )
    show_list(settings, listing, Client(settings.url), f"/api/v1/nodes/{node}/volumes", watch=False)


@nodes.command("show")
@click.argument("node", shell_complete=complete_nodes)
@connected
@formatted
@pass_settings
def show_node(settings: Settings, node: str) -> None:
    """Show one node."""
    client = Client(settings.url)
    found = client.get(f"/api/v1/nodes/{node}")
    if settings.is_data:
        print_data(settings, found)
        return
    try:
        last_day = _last_day(client.get(f"/api/v1/nodes/{node}/heartbeats"))
    except NotFound:  # A server of the previous release.
        last_day = ""
    now = datetime.now(UTC)
    able = found["capabilities"]
    print_facts(
        [
            ("node", found["id"]),
            ("hostname", found["hostname"]),
            ("site", found["site"]),
            ("state", f"{state_text(found)}, last seen {age(found['last_seen'], now)} ago"),
            ("last day", last_day),
            ("drained", found["drain"] or ""),
            ("problem", found.get("problem") or ""),
            ("joined", f"{age(found['registered_at'], now)} ago"),
            ("system", _system(found)),
            ("cores", str(able["cpu_cores"])),
            ("memory", size(able["memory_bytes"])),
            ("disk", f"{size(able['disk_free_bytes'])} free of {size(able['disk_bytes'])}"),
            ("engine", _engine(found)),
            ("runs", ", ".join(able["profile_types"]) or "nothing"),
            ("gpus", ", ".join(f"{gpu['model']} {size(gpu['memory_bytes'])}" for gpu in able["gpus"]) or "none"),
            ("labels", _labels(found) or "none"),
            ("settings", _settings(found)),
            ("version", found["software_version"]),
            ("protocol", protocol_text(found)),
        ]
    )


@nodes.command("remove")
@click.argument("node", shell_complete=complete_nodes)
@connected
@pass_settings
def remove(settings: Settings, node: str) -> None:
    """Remove a node. It does not reconnect until its process is restarted; its containers keep running."""
    Client(settings.url).delete(f"/api/v1/nodes/{node}")
    done(f"removed node {node}")
    click.echo("  What ran on it keeps running there. It does not reconnect until its process is restarted.")


@nodes.command("drain")
@click.argument("node", shell_complete=complete_nodes)
@click.option("--reason", type=MayBeEmpty(), default="", metavar="TEXT", help="The reason, shown with the node.")
@click.option("--wait/--no-wait", default=False, help="Stay until the node is empty [no-wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@pass_settings
@click.pass_context
def drain(ctx: click.Context, settings: Settings, /, *, node: str, reason: str, wait: bool, timeout: float) -> None:
    """Drain a node, for example for maintenance. Its instances move to other nodes where possible, and are healthy
    there before they are removed here; those of a deployment on every node are only removed. The node takes nothing
    new until  homeport nodes undrain ."""
    client = Client(settings.url)
    found = client.post(f"/api/v1/nodes/{node}/drain", {"reason": reason})
    done(f"node {found['id']} accepts no new work: {found['drain']}")
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


@nodes.command("set")
@click.argument("node", shell_complete=complete_nodes)
@click.option("--heartbeat", metavar="TIME", help="Heartbeat interval, such as 10s; 0 for the site's default.")
@click.option(
    "--log-level",
    type=click.Choice([*LOG_LEVELS, "default"]),
    help="Log level; default is the one it was started with.",
)
@click.option("--telemetry", metavar="TIME", help="Telemetry interval, such as 10s; 0 for its default.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Sets a label; KEY- removes it.")
@connected
@pass_settings
def set_node(
    settings: Settings,
    /,
    *,
    node: str,
    heartbeat: str | None,
    telemetry: str | None,
    log_level: str | None,
    labels: tuple[str, ...],
) -> None:
    """Change settings of a node while it runs. They apply at once, without a restart, and are permanent."""
    body: dict[str, object] = {}
    for name, given in (("heartbeat_seconds", heartbeat), ("telemetry_seconds", telemetry)):
        if given is not None:
            body[name] = _interval(given)
    if log_level is not None:
        body["log_level"] = "" if log_level == "default" else log_level
    if labels:
        body["labels"] = parse_labels(labels)
    if not body:
        raise click.UsageError("Nothing to set. Use --heartbeat, --telemetry, --log-level or --label.")
    found = Client(settings.url).patch(f"/api/v1/nodes/{node}/settings", body)
    done(f"node {found['id']}   {_settings(found) or 'as it was started'}")


@nodes.command("join-command")
@click.argument("site", required=False, shell_complete=complete_sites)
@valid_option
@connected
@formatted
@pass_settings
def join_command(settings: Settings, site: str | None, valid: float) -> None:
    """Print the one line that joins a new node to a site (the only one, if none is named), with a one-time token. The
    site must be connected to central, or use the site's own --url."""
    client = Client(settings.url)
    path = f"/api/v1/sites/{site or only_site(client, how='homeport nodes join-command SITE')}/nodes/join-token"
    made = client.post(path, {"lifetime_seconds": valid * 60})
    line = ["node", "--site", made["nodes"] or "HOST:PORT", "--join-url", made["api"] or settings.url]
    print_line(settings, [*line, "--join", made["token"], "--pin", made["pin"]], made)


@nodes.command("pending")
@site_option
@listed
@pass_settings
def pending(settings: Settings, watch: bool, site: str | None) -> None:
    """List the nodes that wait for approval at a site: that of --site, or the only one, or with the site's own
    --url."""
    show = partial(show_identities, settings, watch=watch, kinds=("node",), standing="pending")
    try:
        show(site=site_of_nodes(Client(settings.url), site))
    except Refused:
        # The only site has no identity, so no machine can request one.
        if site is not None:
            raise
        show()


@nodes.command("approve")
@click.argument("node")
@click.option("--key", metavar="sha256:HEX", help="Approve it only if it has this key; the new machine shows it.")
@site_option
@connected
@pass_settings
def approve(settings: Settings, node: str, key: str | None, site: str | None) -> None:
    """Approve a pending node of a site: that of --site, or the only one, or with the site's own --url."""
    approve_identity(settings, node, key, site_of_nodes(Client(settings.url), site))


def state_text(node: Item) -> str:
    """A drained node may also be stale or lost."""
    if not node["drain"]:
        return str(node["liveness"])
    return "drained" if node["liveness"] == "live" else f"{node['liveness']}, drained"


def _interval(text: str) -> float:
    seconds = 0.0 if text == "0" else seconds_of(text)
    if seconds is None:
        raise click.UsageError(f'"{text}" is not a length of time: write 10s or 1m.')
    return seconds


def _last_day(beats: Item) -> str:
    """How much of the time that is known it was live, and how often it was not."""
    seconds: dict[str, float] = {}
    for each in beats["intervals"]:
        length = (parse(each["end"]) - parse(each["start"])).total_seconds()
        seconds[each["state"]] = seconds.get(each["state"], 0.0) + length
    known = sum(length for state, length in seconds.items() if state != "unknown")
    if not known:
        return "no heartbeat was recorded"
    times = sum(each["state"] in ("stale", "lost") for each in beats["intervals"])
    parts = [f"live {100 * seconds.get('live', 0.0) / known:.1f} % of {duration(known)}"]
    parts += [f"{times} interruptions" if times != 1 else "1 interruption"] if times else []
    parts += [f"{duration(seconds['unknown'])} unknown"] if seconds.get("unknown", 0.0) >= 1 else []
    return ", ".join(parts)


def _settings(node: Item) -> str:
    """The settings that were changed while it runs."""
    found = node.get("settings") or {}
    parts = [f"{key}={value}" for key, value in found.get("labels", {}).items()]
    if found.get("heartbeat_seconds"):
        parts.append(f"heartbeat every {duration_text(found['heartbeat_seconds'])}")
    if found.get("telemetry_seconds"):
        parts.append(f"telemetry every {duration_text(found['telemetry_seconds'])}")
    if found.get("log_level"):
        parts.append(f"log level {found['log_level']}")
    return ", ".join(parts)


def _labels(node: Item) -> str:
    return ", ".join(f"{name}={value}" for name, value in node["labels"].items())


def _engine(node: Item) -> str:
    able = node["capabilities"]
    return f"{able['engine']} {able['engine_version']}".strip() or "none"


def _system(node: Item) -> str:
    return f"{node['capabilities']['os']} {node['capabilities']['architecture']}"
