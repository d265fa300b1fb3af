"""`homeport deployments`: what is wanted where, how it stands, and how it came to that."""

from datetime import UTC, datetime

import click

from homeport.cli.ages import age, clock
from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_deployments, complete_sites
from homeport.cli.events import print_event
from homeport.cli.exits import Exit
from homeport.cli.feed import Feed
from homeport.cli.finding import find_deployment
from homeport.cli.holding import hold_text
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, done, print_data, print_facts, print_table, show
from homeport.cli.planning import show_plan
from homeport.cli.progress import lines_for
from homeport.cli.verdicts import exit_of, print_verdicts
from homeport.cli.waiting import Verdict, Wait


@click.group()
def deployments() -> None:
    """List, follow and delete deployments.

    A DEPLOYMENT is named by NAME@SITE, by its name where only one site has it, by its id or by any
    unique prefix of that.
    """


@deployments.command("list")
@click.option("--site", help="Only this site's.", shell_complete=complete_sites)
@click.option("--name", help="Only those of this name.")
@click.option("--state", help="Only those in this state.")
@click.option("--archived", is_flag=True, help="Those that were deleted.")
@listed
@pass_settings
def list_deployments(
    settings: Settings, /, *, watch: bool, site: str | None, name: str | None, state: str | None, archived: bool
) -> None:
    """List the deployments."""
    listing = Listing(
        key="deployments",
        columns=(
            Column("DEPLOYMENT", lambda item: item["name"]),
            Column("SITE", lambda item: item["site"]),
            Column("APP", lambda item: f"{item['app_name']} {item['app_version']}"),
            Column("STATE", lambda item: item["state"]),
            Column("NODES", _ready),
            Column("SINCE", lambda item: age(item["updated_at"], datetime.now(UTC))),
            Column("ID", lambda item: item["id"], wide=True),
            Column("REVISION", lambda item: _short(item["revision"]), wide=True),
            Column("COMMIT", lambda item: item["commit"][:12], wide=True),
            Column("NOTE", _note),
        ),
        identity=lambda item: item["id"],
        empty="Nothing is deployed. Deploy something:  homeport deploy APP --site SITE",
    )
    client = Client(settings.url)
    query = {
        "site": site,
        "name": name,
        "state": state.upper() if state else None,
        "archived": archived or None,
    }
    show(settings, listing, lambda: client.get("/api/v1/deployments", **query), watch=watch)


@deployments.command("show")
@click.argument("deployment", shell_complete=complete_deployments)
@connected
@formatted
@pass_settings
def show_deployment(settings: Settings, deployment: str) -> None:
    """Show one deployment and its instances."""
    found = find_deployment(Client(settings.url), deployment)
    if settings.is_data:
        print_data(settings, found)
        return
    now = datetime.now(UTC)
    print_facts(
        [
            ("deployment", f"{found['name']}@{found['site']}"),
            ("app", f"{found['app_category']}/{found['app_name']} {found['app_version']}"),
            ("profile", f"{found['profile']} ({found['profile_type']})"),
            ("state", f"{found['state']} since {age(found['updated_at'], now)}"),
            ("note", _note(found)),
            ("held", hold_text(found["hold"]) if found["hold"] else ""),
            ("id", found["id"]),
            ("revision", _short(found["revision"])),
            ("commit", found["commit"][:12]),
            ("created", f"{age(found['created_at'], now)} ago by {found['created_by']}"),
            *((f"  {name}", str(value)) for name, value in found["parameters"].items()),
        ]
    )
    if found["instances"]:
        click.echo()
        print_table(settings, _instance_columns(now), found["instances"])


@deployments.command("watch")
@click.argument("deployment", shell_complete=complete_deployments)
@connected
@formatted
@pass_settings
def watch_deployment(settings: Settings, deployment: str) -> None:
    """Print a deployment's events as they happen, until Ctrl-C or until it is deleted."""
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    if not settings.is_data:
        click.echo(f"{found['name']}@{found['site']} is {found['state']}. {_note(found)}".rstrip())
    after = client.get("/api/v1/overview")["last_event_id"]
    try:
        for event in Feed(client, "/api/v1/events", after=after):
            if event["deployment_id"] != found["id"]:
                continue
            print_event(settings, event)
            if event["kind"] == "deployment.state" and event["data"].get("state") == "DELETED":
                return
    except KeyboardInterrupt:
        return


@deployments.command("history")
@click.argument("deployment", shell_complete=complete_deployments)
@connected
@formatted
@pass_settings
def history(settings: Settings, deployment: str) -> None:
    """Show every step a deployment has taken, with who and why."""
    client = Client(settings.url)
    answer = client.get(f"/api/v1/deployments/{find_deployment(client, deployment)['id']}/history")
    if settings.is_data:
        print_data(settings, answer)
        return
    columns = (
        Column("AT", lambda entry: clock(entry["at"])),
        Column("NODE", lambda entry: entry["node_id"] or "-"),
        Column("BEFORE", lambda entry: entry["before"]),
        Column("AFTER", lambda entry: entry["after"] if entry["verdict"] == "stepped" else "(late news)"),
        Column("BY", lambda entry: entry["actor"]),
        Column("REVISION", lambda entry: _short(entry["revision"]), wide=True),
        Column("WHY", _why),
    )
    print_table(settings, columns, answer["history"])


@deployments.command("delete")
@click.argument("deployment", shell_complete=complete_deployments)
@click.option("--plan", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("--wait/--no-wait", default=True, help="Follow it until it is gone [wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def delete(
    ctx: click.Context, settings: Settings, /, *, deployment: str, plan: bool, wait: bool, timeout: float
) -> None:
    """Remove a deployment's file from Git; its site then removes the containers."""
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    if plan:
        ctx.exit(show_plan(settings, client.delete(f"/api/v1/deployments/{found['id']}", plan=True)))
    after = client.get("/api/v1/overview")["last_event_id"] if wait else 0
    answer = client.delete(f"/api/v1/deployments/{found['id']}")
    if not wait:
        if settings.is_data:
            print_data(settings, answer)
        else:
            done(f"{found['name']}@{found['site']} is no longer wanted")
        return
    if not settings.is_data:
        click.echo(f"deleting {found['name']} at {found['site']}")
    ctx.exit(_wait_until_gone(settings, client, found["id"], after=after, timeout_seconds=timeout))


def _wait_until_gone(
    settings: Settings, client: Client, deployment_id: str, *, after: int, timeout_seconds: float
) -> Exit:
    lines = None if settings.is_data else lines_for(settings)
    ends = Wait(client, [deployment_id], lines).run(after=after, timeout_seconds=timeout_seconds)
    if settings.is_data:
        print_data(settings, ends[0].deployment)
    else:
        print_verdicts(ends)
    return exit_of(ends, wanted=Verdict.DELETED)


def _instance_columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("NODE", lambda item: item["node_id"] or "(none)"),
        Column("STATE", lambda item: item["state"]),
        Column("REACHABLE", lambda item: "yes" if item["reachable"] else "no"),
        Column("RUNS", lambda item: _short(item["running_revision"])),
        Column("SINCE", lambda item: age(item["updated_at"], now)),
        Column("ATTEMPT", lambda item: str(item["attempt"]), wide=True),
        Column("ORDER", lambda item: str(item["generation"]), wide=True),
        Column("DOING", lambda item: _failure_text(item) or item["step"]),
    )


def _ready(item: Item) -> str:
    placed = [instance for instance in item["instances"] if instance["node_id"] and instance["state"] != "DELETED"]
    return f"{sum(instance['state'] == 'INSTALLED' for instance in placed)}/{len(placed)}"


def _note(item: Item) -> str:
    return str(item["problem"] or item["note"] or "")


def _why(entry: Item) -> str:
    return f"{entry['reason']} ({entry['failure']['code']})" if entry["failure"] else str(entry["reason"])


def _failure_text(item: Item) -> str:
    failure: Json | None = item["failure"]
    return f"{failure['message']} ({failure['code']})" if failure else ""


def _short(revision: str | None) -> str:
    return revision.removeprefix("sha256:")[:8] if revision else "-"
