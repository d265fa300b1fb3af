"""`homeport deployments`: their state, history and revisions."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_deployments, complete_nodes, complete_sites
from homeport.cli.api.export import export_lines
from homeport.cli.api.feed import Feed
from homeport.cli.api.finding import find_deployment
from homeport.cli.commands.insight.events import print_event
from homeport.cli.exits import Exit
from homeport.cli.lazy import Group, MayBeEmpty
from homeport.cli.options import FILTER, Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age, clock
from homeport.cli.terminal.holds import hold_text
from homeport.cli.terminal.moments import SINCE, UNTIL
from homeport.cli.terminal.output import (
    Column,
    Item,
    TableListing,
    done,
    print_data,
    print_facts,
    print_table,
    show_list,
)
from homeport.cli.terminal.plans import show_plan
from homeport.cli.terminal.progress import lines_for
from homeport.cli.terminal.verdicts import exit_of, print_verdicts
from homeport.cli.terminal.waiting import Wait, WaitVerdict
from homeport.core.model.instance import failure_text
from homeport.vocabulary import State


@click.group(cls=Group)
def deployments() -> None:
    """List, follow, compare, roll back and delete deployments.

    A DEPLOYMENT is named by NAME@SITE, by its name where only one site has it, by its id or by any
    unique prefix of that.
    """


@deployments.command("list")
@FILTER
@click.option("--site", help="Only this site's.", shell_complete=complete_sites)
@click.option("--name", help="Only those of this name.")
@click.option("--app", "app_name", help="Only those of this app.")
@click.option(
    "--state",
    type=click.Choice(list(State), case_sensitive=False),
    metavar="STATE",
    help="Only those in this state: INSTALLED, FAILED, ….",
)
@click.option("--node", help="Only those that this node has something of.", shell_complete=complete_nodes)
@click.option("--attention", is_flag=True, help="Only those that failed, are unhealthy or not as Git asks for.")
@click.option("--archived", is_flag=True, help="Those that were deleted.")
@listed
@pass_settings
def list_deployments(
    settings: Settings, /, *, watch: bool, archived: bool, attention: bool, **only: str | None
) -> None:
    """List the deployments."""
    listing = TableListing(
        key="deployments",
        columns=(
            Column("DEPLOYMENT", lambda item: item["name"]),
            Column("SITE", lambda item: item["site"]),
            Column("APP", lambda item: f"{item['app_name']} {_versions(item)}"),
            Column("STATE", lambda item: item["state"], vital=True),
            Column("NODES", _ready),
            Column("SINCE", lambda item: age(item["updated_at"], datetime.now(UTC))),
            Column("ID", lambda item: item["id"], wide=True),
            Column("REVISION", lambda item: _short(item["revision"]), wide=True),
            Column("COMMIT", lambda item: item["commit"][:12], wide=True),
            Column("NOTE", _note),
        ),
        identity=lambda item: item["id"],
        empty=(
            "Nothing is deployed. Deploy something:  homeport deploy ./compose.yaml  "
            "(or an app of the catalog: homeport deploy APP)"
        ),
        fields=(
            *("id", "name", "site", "app_name", "app_version", "running_versions", "state"),
            *("instances", "revision", "commit", "updated_at", "note", "problem"),
        ),
    )
    client = Client(settings.url)
    query = {**only, "archived": archived or None, "attention": attention or None}
    show_list(settings, listing, client, "/api/v1/deployments", watch=watch, **query)


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
            ("app", f"{found['app_category']}/{found['app_name']} {_versions(found)}"),
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
    try:
        for event in Feed(client, f"/api/v1/deployments/{found['id']}/events"):
            if event["data"].get("snapshot"):
                continue  # the current state was printed already
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
    answer = client.pages(f"/api/v1/deployments/{found['id']}/history", "history")
    if settings.is_data:
        print_data(settings, answer)
        return
    columns = (
        Column("AT", lambda entry: clock(entry["at"])),
        Column("NODE", lambda entry: entry["node_id"] or "-"),
        Column("STATE", lambda entry: "(late news)" if entry["verdict"] == "stale" else entry["after"], vital=True),
        Column("BEFORE", lambda entry: entry["before"]),
        Column("BY", lambda entry: entry["actor"]),
        Column("REVISION", lambda entry: _short(entry["revision"]), wide=True),
        Column("WHY", _why),
    )
    entries = [*answer["history"], *_repairs(client, found["id"])]
    print_table(settings, columns, sorted(entries, key=lambda entry: datetime.fromisoformat(entry["at"])))


def _repairs(client: Client, deployment_id: str) -> Iterator[Json]:
    """What its nodes have started again by themselves, as after a power cut. It is in the events alone: a repair does
    not change a deployment's state."""
    for line in client.lines("/api/v1/events/export", deployment=deployment_id):
        event = json.loads(line)
        if event["kind"] == "drift.repaired":
            reason = event["message"].partition(": ")[2] or event["message"]
            yield {
                **{"at": event["at"], "node_id": event["node_id"], "reason": reason, "after": "repaired"},
                **{"before": "INSTALLED", "actor": "node", "verdict": "", "revision": None, "failure": None},
            }


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

    Exits with 6 when they differ.
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


def _requesting(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a request about a deployment: its reason, and how long the command follows it."""
    for add in (
        click.pass_context,
        pass_settings,
        formatted,
        connected,
        click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait."),
        click.option("--wait/--no-wait", default=True, help="Follow it until it has ended [wait]."),
        click.option("--reason", type=MayBeEmpty(), help="The reason; kept in Git and shown to others."),
    ):
        command = add(command)
    return command


@deployments.command("rollback")
@click.argument("deployment", shell_complete=complete_deployments)
@click.option("--to", metavar="REVISION", help="Digits of a revision, or a version [the last that was healthy].")
@_requesting
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
    """Roll back to an older revision; list them with `history --releases`.

    Works at central and at a site, also while Git is unavailable: then the site rolls back at once, and Git is
    updated later. A newer revision in Git wins. At a site on hold, a rollback from central waits until the hold ends;
    one at the site itself does not.
    """
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    body: Json = {key: value for key, value in (("to", to), ("reason", reason)) if value}
    answer = client.post(f"/api/v1/deployments/{found['id']}/rollback", body)
    if not settings.is_data:
        click.echo(f"{found['name']}@{found['site']} rolls back to {answer['app_version']} {_where(answer)}")
        if answer.get("waits"):
            click.echo(f"It waits: {found['site']} is {answer['waits']}.")
            click.echo(f"Release it with  homeport sites release {found['site']} , or roll back at the site itself.")
    if not wait or answer.get("waits") or (answer["commit"] is None and not answer["site_told"]):
        if settings.is_data:
            print_data(settings, answer)
        return
    lines = None if settings.is_data else lines_for(settings)
    following = Wait(client, [found["id"]], lines, revision=answer["revision"])
    ends = following.run(after=answer.get("last_event_id"), timeout_seconds=timeout)
    if settings.is_data:
        print_data(settings, {**answer, "deployment": ends[0].deployment})
    else:
        print_verdicts(ends)
    ctx.exit(exit_of(ends, wanted=WaitVerdict.INSTALLED))


@deployments.command("retry")
@click.argument("deployment", shell_complete=complete_deployments)
@_requesting
def retry(
    ctx: click.Context, settings: Settings, /, *, deployment: str, reason: str | None, wait: bool, timeout: float
) -> None:
    """Retry what has failed or was rolled back, with all its attempts."""
    ctx.exit(_ask(settings, deployment, "retry", "is tried again", reason, wait=wait, timeout_seconds=timeout))


@deployments.command("restart")
@click.argument("deployment", shell_complete=complete_deployments)
@_requesting
def restart(
    ctx: click.Context, settings: Settings, /, *, deployment: str, reason: str | None, wait: bool, timeout: float
) -> None:
    """Restart the containers of a deployment in place, one component after the other. Its data stays."""
    ctx.exit(_ask(settings, deployment, "restart", "is restarted", reason, wait=wait, timeout_seconds=timeout))


def _ask(
    settings: Settings,
    deployment: str,
    verb: str,
    outcome: str,
    reason: str | None,
    *,
    wait: bool,
    timeout_seconds: float,
) -> Exit:
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    answer = client.post(f"/api/v1/deployments/{found['id']}/{verb}", {"reason": reason} if reason else {})
    if not settings.is_data:
        click.echo(f"{found['name']}@{found['site']} {outcome} (commit {answer['commit'][:12]})")
    if not wait:
        if settings.is_data:
            print_data(settings, answer)
        return Exit.DONE
    lines = None if settings.is_data else lines_for(settings)
    ends = Wait(client, [found["id"]], lines, revision=answer["revision"]).run(
        after=answer.get("last_event_id"), timeout_seconds=timeout_seconds
    )
    if settings.is_data:
        print_data(settings, {**answer, "deployment": ends[0].deployment})
    else:
        print_verdicts(ends)
    return exit_of(ends, wanted=WaitVerdict.INSTALLED)


def _where(answer: Json) -> str:
    if answer["commit"] is not None:
        return f"(commit {answer['commit'][:12]})"
    if answer["site_told"]:
        return "(the site has been notified; Git follows as soon as it can be written)"
    return "as soon as its site or Git can be reached again; it is written down here"


def _shown(value: object) -> str:
    return "nothing" if value is None else str(value)


@deployments.command("delete")
@click.argument("deployment", shell_complete=complete_deployments)
@click.option("--plan", is_flag=True, help="Show what would happen, and change nothing.")
@click.option("--remove-data", is_flag=True, help="Remove its data volumes too: what they hold is lost.")
@click.option("--wait/--no-wait", default=True, help="Follow it until it is gone [wait].")
@click.option("--timeout", default=600.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def delete(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    deployment: str,
    plan: bool,
    remove_data: bool,
    wait: bool,
    timeout: float,
) -> None:
    """Remove a deployment's file from Git; its site then removes the containers.

    Data volumes stay on the nodes: they belong to the deployment's name, and the next one of that name at the site
    finds them again. With --remove-data they go too; --plan says which.
    """
    client = Client(settings.url)
    found = find_deployment(client, deployment)
    path = f"/api/v1/deployments/{found['id']}"
    if plan:
        ctx.exit(show_plan(settings, client.delete(path, plan=True, remove_data=remove_data or None)))
    answer = client.delete(path, remove_data=remove_data or None)
    if not settings.is_data and not remove_data:
        named = f"{found['name']} at {found['site']}"
        click.echo(f"Data volumes, if it has any, stay: the next deployment called {named} finds them again.")
        again = f"homeport deployments delete {found['name']}@{found['site']} --remove-data"
        click.echo(f"To remove them, deploy it once more and run  {again}")
    if not wait:
        if settings.is_data:
            print_data(settings, answer)
        else:
            done(f"{found['name']}@{found['site']} is no longer wanted")
        return
    if not settings.is_data:
        data = " with its data" if remove_data else ""
        click.echo(f"deleting {found['name']} at {found['site']}{data}")
    after = answer.get("last_event_id")
    ctx.exit(_wait_until_gone(settings, client, found["id"], after=after, timeout_seconds=timeout))


def _wait_until_gone(
    settings: Settings, client: Client, deployment_id: str, *, after: int | None, timeout_seconds: float
) -> Exit:
    lines = None if settings.is_data else lines_for(settings)
    ends = Wait(client, [deployment_id], lines).run(after=after, timeout_seconds=timeout_seconds)
    if settings.is_data:
        print_data(settings, ends[0].deployment)
    else:
        print_verdicts(ends)
    return exit_of(ends, wanted=WaitVerdict.DELETED)


def _instance_columns(now: datetime) -> tuple[Column, ...]:
    return (
        Column("NODE", lambda item: item["node_id"] or "(none)"),
        Column("STATE", lambda item: item["state"], vital=True),
        Column("REACHABLE", lambda item: "yes" if item["reachable"] else "no"),
        Column("RUNS", lambda item: item["running_version"] or _short(item["running_revision"])),
        Column("REVISION", lambda item: _short(item["running_revision"]), wide=True),
        Column("SINCE", lambda item: age(item["updated_at"], now)),
        Column("ATTEMPT", lambda item: str(item["attempt"]), wide=True),
        Column("ORDER", lambda item: str(item["generation"]), wide=True),
        Column("DOING", lambda item: _failure_text(item) or _health_text(item) or item["step"]),
    )


def _ready(item: Item) -> str:
    placed = [instance for instance in item["instances"] if instance["node_id"] and instance["state"] != "DELETED"]
    ready = [each for each in placed if each["state"] == "INSTALLED" and each.get("health") != "unhealthy"]
    return f"{len(ready)}/{len(placed)}"


def _versions(item: Item) -> str:
    """The running version, and the wanted one where it differs."""
    runs = item.get("running_versions") or [item["app_version"]]
    wanted = "" if runs == [item["app_version"]] else f" ({item['app_version']} wanted)"
    return f"{', '.join(runs)}{wanted}"


def _note(item: Item) -> str:
    return str(item["problem"] or item["note"] or "")


def _why(entry: Item) -> str:
    return failure_text(entry["reason"], entry["failure"]["code"]) if entry["failure"] else str(entry["reason"])


def _failure_text(item: Item) -> str:
    failure: Json | None = item["failure"]
    return failure_text(failure["message"], failure["code"]) if failure else ""


def _health_text(item: Item) -> str:
    return f"unhealthy: {item['health_reason']}" if item.get("health") == "unhealthy" else ""


def _short(revision: str | None) -> str:
    return revision.removeprefix("sha256:")[:8] if revision else "-"
