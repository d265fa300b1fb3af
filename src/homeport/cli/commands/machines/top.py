"""`homeport top`: what nodes and containers use now, live."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_sites
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.ages import age, size
from homeport.cli.terminal.output import Column, Item, TableListing, show

PATH = "/api/v1/telemetry"


@click.command()
@click.argument("what", type=click.Choice(["nodes", "deployments"]), default="nodes")
@click.option("--site", help="Only this site.", shell_complete=complete_sites)
@click.option("--once", is_flag=True, help="Print once and exit; without it, a terminal shows it live until Ctrl-C.")
@connected
@formatted
@pass_settings
def top(settings: Settings, /, *, what: str, site: str | None, once: bool) -> None:
    """Show what nodes and containers use, live.

    `top deployments` is about the containers of deployments."""
    client = Client(settings.url)
    listing = NODES if what == "nodes" else CONTAINERS

    def fetch() -> Item:
        return client.pages(PATH, listing.key, limit=None, site=site)

    # A pipe gets it once: a program that wants more asks again.
    show(settings, listing, fetch, watch=not once and sys.stdout.isatty())


def _percent(key: str) -> Callable[[Item], str]:
    return lambda item: "–" if item.get(key) is None else f"{item[key]:.0f} %"


def _size(key: str, *, of: str | None = None, suffix: str = "") -> Callable[[Item], str]:
    def shown(item: Item) -> str:
        if item.get(key) is None:
            return "–"
        used = f"{size(int(item[key]))}{suffix}"
        return share(used, size(item[of])) if of and item[of] else used

    return shown


def share(used: str, whole: str) -> str:
    """2.8 of 25 GB: a unit that both have is said once."""
    unit = f" {whole.rpartition(' ')[2]}"
    return f"{used.removesuffix(unit)} of {whole}"


def _plain(key: str, unit: str = "", digits: int = 0) -> Callable[[Item], str]:
    return lambda item: "–" if item.get(key) is None else f"{item[key]:.{digits}f}{unit}"


def _measured(item: Item) -> str:
    return f"{age(item['measured_at'], datetime.now(UTC))} ago" if item.get("measured_at") else "never"


NODES = TableListing(
    key="nodes",
    columns=(
        Column("NODE", lambda node: node["node"]),
        Column("SITE", lambda node: node["site"]),
        Column("STATE", lambda node: node["liveness"], vital=True),
        Column("CPU", _percent("cpu_percent")),
        Column("LOAD", _plain("load_1m", digits=1)),
        Column("MEMORY", _size("memory_used_bytes", of="memory_bytes")),
        Column("DISK", _size("disk_used_bytes", of="disk_bytes")),
        Column("RECEIVED", _size("network_receive_bytes_per_second", suffix="/s")),
        Column("SENT", _size("network_send_bytes_per_second", suffix="/s")),
        Column("TEMPERATURE", _plain("temperature_celsius", " °C")),
        Column("GPU", _percent("gpu_percent")),
        Column("GPU MEMORY", _size("gpu_memory_used_bytes"), wide=True),
        Column("GPU POWER", _plain("gpu_power_watts", " W"), wide=True),
        Column("READ", _size("disk_read_bytes_per_second", suffix="/s"), wide=True),
        Column("WRITTEN", _size("disk_write_bytes_per_second", suffix="/s"), wide=True),
        Column("MEASURED", _measured),
    ),
    identity=lambda node: node["node"],
    empty="No node has joined yet. Start one:  homeport node --site HOST:PORT",
)
CONTAINERS = TableListing(
    key="containers",
    columns=(
        Column("DEPLOYMENT", lambda item: f"{item['deployment']}@{item['site']}"),
        Column("COMPONENT", lambda item: item["component"]),
        Column("NODE", lambda item: item["node"]),
        Column("CPU", _plain("cpu_percent", " %", digits=1)),
        Column("MEMORY", _size("memory_bytes")),
        Column("MEASURED", _measured),
        Column("CONTAINER", lambda item: item["container"]),
    ),
    identity=lambda item: item["container"],
    empty="No container of a deployment was measured yet. A new one shows up within 20 seconds.",
)
