"""`homeport status`: the whole fleet on one page, problems first."""

from collections.abc import Mapping
from typing import Any, Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.exits import Exit
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.output import Column, print_data, print_facts, print_table

MORE: Final = {
    "site": "homeport sites list",
    "node": "homeport nodes list",
    "deployment": "homeport deployments list --attention",
}


@click.command()
@connected
@formatted
@pass_settings
@click.pass_context
def status(ctx: click.Context, settings: Settings) -> None:
    """Show how the fleet is: sites, nodes, deployments, and what needs attention.

    The latter is what fails, is unhealthy or unreachable, or runs another release than Git wants; with any of it the
    exit code is 1. With the URL of a site it shows that site, with or without central.
    """
    overview = Client(settings.url).get("/api/v1/overview")
    if settings.is_data:
        print_data(settings, overview)
    else:
        _show(settings, overview)
    ctx.exit(Exit.FAILED if overview["attention"] else Exit.DONE)


def _show(settings: Settings, overview: Json) -> None:
    sites, nodes, devices = overview["sites"], overview["nodes"], overview.get("devices", 0)
    print_facts(
        [
            ("sites", _of(sites["reachable"], sites["count"], "in reach")),
            ("nodes", _of(nodes.get("live", 0), sum(nodes.values()), "live")),
            *([("devices", f"{devices} of Margo clients; see  homeport sites devices SITE")] if devices else []),
            ("deployments", _counts(overview["deployments"])),
            ("commit", (overview["commit"] or "-")[:12]),
        ]
    )
    click.echo()
    wrong = overview["attention"]
    if not wrong:
        pending = overview["deployments"].get("PENDING", 0)
        is_waiting = bool(pending) and not sum(nodes.values()) and not devices
        click.echo(
            f"{pending} PENDING, and no node has joined:  homeport nodes list" if is_waiting else "All is well."
        )
        return
    print_table(settings, (Column("WHAT", _name), Column("WHY", lambda item: item["why"])), wrong)
    for kind, count in overview["attention_counts"].items():
        more = count - sum(item["kind"] == kind for item in wrong)
        if more > 0:
            click.echo(f"… and {more} more {kind}{'' if more == 1 else 's'}. See  {MORE.get(kind, '')}".rstrip())
    count = max(len(wrong), sum(overview["attention_counts"].values()))
    needs = "1 needs" if count == 1 else f"{count} need"
    example = next((_name(item) for item in wrong if item["kind"] == "deployment"), None)
    reason = "" if example is None else f" Ask for the reason:  homeport why {example}"
    click.echo(f"{needs} attention.{reason}", err=True)


def _name(item: Mapping[str, Any]) -> str:
    match item["kind"]:
        case "site":
            return f"site {item['name']}"
        case "node":
            return f"node {item['name']}@{item['site']}"
        case _:
            return f"{item['name']}@{item['site']}"


def _of(good: int, count: int, word: str) -> str:
    return f"{good} of {count} {word}" if count else "none yet"


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none yet"
