"""`homeport deployments`: what is wanted where, how it stands, and how it came to that."""

from datetime import UTC, datetime
from pathlib import Path

import click

from homeport.cli.ages import age, clock
from homeport.cli.client import Client, Json
from homeport.cli.completing import complete_deployments, complete_sites
from homeport.cli.events import print_event
from homeport.cli.exits import Exit
from homeport.cli.exporting import export_lines
from homeport.cli.feed import Feed
from homeport.cli.finding import find_deployment
from homeport.cli.holding import hold_text
from homeport.cli.moments import SINCE, UNTIL
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.output import Column, Item, Listing, done, print_data, print_facts, print_table, show
from homeport.cli.planning import show_plan
from homeport.cli.progress import lines_for
from homeport.cli.verdicts import exit_of, print_verdicts
from homeport.cli.waiting import Verdict, Wait


@click.group()
def deployments() -> None:
    """List, follow, compare, roll back and delete deployments.

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
@click.option("--releases", is_flag=True, help="Show its revisions instead, newest first.")
@connected
@formatted
@pass_settings
def history(settings: Settings, /, *, deployment: str, releases: bool) -> None:
    """Show every step a deployment has taken, with who and why."""
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    if releases:
        _show_releases(settings, client.get(f"/api/v1/deployments/{found['id']}/revisions"))
        return
    answer = client.get(f"/api/v1/deployments/{found['id']}/history")
    if settings.is_data:
        print_data(settings, answer)
        return
    columns = (
        Column("AT", lambda entry: clock(entry["at"])),
        Column("NODE", lambda entry: entry["node_id"] or "-"),
        Column("BEFORE", lambda entry: entry["before"]),
        Column("AFTER", lambda entry: "(late news)" if entry["verdict"] == "stale" else entry["after"]),
        Column("BY", lambda entry: entry["actor"]),
        Column("REVISION", lambda entry: _short(entry["revision"]), wide=True),
        Column("WHY", _why),
    )
    print_table(settings, columns, answer["history"])


@deployments.command("export")
@click.argument("deployment", required=False, shell_complete=complete_deployments)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout.")
@click.option("--site", help="Only what happened at this site.", shell_complete=complete_sites)
@SINCE
@UNTIL
@connected
@pass_settings
def export(settings: Settings, /, *, deployment: str | None, out: Path | None, **only: str | datetime | None) -> None:
    """Print every step of every deployment, or of one, as a line of JSON: when, on which node, by whom and why."""
    client = Client(settings.url)
    found = find_deployment(client, deployment)["id"] if deployment else None
    export_lines(client.lines("/api/v1/history/export", deployment=found, **only), out, "steps")


def _show_releases(settings: Settings, answer: Json) -> None:
    if settings.is_data:
        print_data(settings, answer)
        return
    columns = (
        Column("REVISION", lambda item: _short(item["revision"])),
        Column("VERSION", lambda item: item["app_version"]),
        Column("AT", lambda item: clock(item["at"])),
        Column("BY", lambda item: item["author"]),
        Column("COMMIT", lambda item: item["commit"][:12]),
        Column("RUNS ON", lambda item: ", ".join(item["nodes"]) or "-"),
        Column("NOTE", _release_note),
    )
    print_table(settings, columns, answer["revisions"])


def _release_note(item: Item) -> str:
    notes = (
        ("wanted", item["wanted"]),
        ("rolled back", item["rolled_back"]),
        ("never healthy", not item["was_healthy"]),
    )
    return ", ".join(text for text, holds in notes if holds)


@deployments.command("diff")
@click.argument("deployment", shell_complete=complete_deployments)
@click.option("--from", "before", metavar="REVISION", help="The older one [the one before].")
@click.option("--to", "after", metavar="REVISION", help="The newer one [what Git wants].")
@click.option("--text", is_flag=True, help="Show the lines of the files.")
@connected
@formatted
@pass_settings
@click.pass_context
def diff(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    deployment: str,
    before: str | None,
    after: str | None,
    text: bool,
) -> None:
    """Show what differs between two revisions. A REVISION is some digits of it, or a version.

    Exits with 6 where they differ.
    """
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    answer = client.get(f"/api/v1/deployments/{found['id']}/diff", before=before, after=after)
    if settings.is_data:
        print_data(settings, answer)
    elif text:
        click.echo(answer["text"])
    else:
        click.echo(f"{_short(answer['before'])} → {_short(answer['after'])}")
        for change in answer["changes"]:
            click.echo(f"  {change['path']}: {_shown(change['before'])} → {_shown(change['after'])}")
        if not answer["changes"]:
            click.echo("  Nothing that is asked for differs.")
    ctx.exit(Exit.CHANGES if answer["changes"] else Exit.DONE)


@deployments.command("rollback")
@click.argument("deployment", shell_complete=complete_deployments)
@click.option("--to", metavar="REVISION", help="Digits of a revision, or a version [the last that was healthy].")
@click.option("--reason", help="Why; it is kept in Git and shown to others.")
@click.option("--wait/--no-wait", default=True, help="Follow it until it has ended [wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def rollback(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    deployment: str,
    to: str | None,
    reason: str | None,
    wait: bool,
    timeout: float,
) -> None:
    """Go back to an older revision; see them with `history --releases`.

    Works at central and at a site, also while Git cannot be reached: then the site goes back at once, and Git
    hears of it on its return. A newer revision in Git wins. At a site that is held, one that comes from central
    waits for the end of the hold; one at the site itself does not.
    """
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    after = client.get("/api/v1/overview")["last_event_id"] if wait else 0
    body: Json = {key: value for key, value in (("to", to), ("reason", reason)) if value}
    answer = client.post(f"/api/v1/deployments/{found['id']}/rollback", body)
    if not settings.is_data:
        click.echo(f"{found['name']}@{found['site']} goes back to {answer['app_version']} {_where(answer)}")
        if answer.get("waits"):
            click.echo(f"It waits, for {found['site']} is {answer['waits']}.")
            click.echo(f"End that with  homeport sites release {found['site']} , or go back at the site itself.")
    if not wait or answer.get("waits") or (answer["commit"] is None and not answer["site_told"]):
        if settings.is_data:
            print_data(settings, answer)
        return
    lines = None if settings.is_data else lines_for(settings)
    wish = Wait(client, [found["id"]], lines, revision=answer["revision"])
    ends = wish.run(after=after, timeout_seconds=timeout)
    if settings.is_data:
        print_data(settings, {**answer, "deployment": ends[0].deployment})
    else:
        print_verdicts(ends)
    ctx.exit(exit_of(ends, wanted=Verdict.INSTALLED))


def _where(answer: Json) -> str:
    if answer["commit"] is not None:
        return f"(commit {answer['commit'][:12]})"
    if answer["site_told"]:
        return "(the site has been told; Git follows as soon as it can be written)"
    return "as soon as its site or Git can be reached again; it is written down here"


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


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
        Column("RUNS", lambda item: item["running_version"] or _short(item["running_revision"])),
        Column("REVISION", lambda item: _short(item["running_revision"]), wide=True),
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
