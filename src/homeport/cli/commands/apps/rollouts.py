"""`homeport rollouts`: their progress and failures, and the operator's commands."""

from datetime import UTC, datetime

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_rollouts
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.rollout_options import follow
from homeport.cli.terminal.ages import age
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

STATES = ("running", "paused", "stopped", "done", "aborted", "superseded")


@click.group(cls=Group)
def rollouts() -> None:
    """List, follow and steer rollouts over many sites.

    Start one with  homeport deploy APP -l region=eu --wave 1 --wave 25% --wave 100% . A ROLLOUT is named
    by its id, any unique prefix of that, or by the deployment's name: then the newest is meant.
    """


@rollouts.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--name", help="Only those of this deployment name.")
@listed
@pass_settings
def list_rollouts(settings: Settings, /, *, watch: bool, state: str | None, name: str | None) -> None:
    """List the rollouts, the newest first."""
    listing = TableListing(
        key="rollouts",
        columns=(
            Column("ROLLOUT", lambda item: item["id"][:8]),
            Column("NAME", lambda item: item["name"]),
            Column("APP", lambda item: f"{item['app_name']} {item['app_version']}"),
            Column("STATE", lambda item: item["state"], vital=True),
            Column("WAVE", _progress),
            Column("SITES", lambda item: _counts(item["counts"])),
            Column("AGE", lambda item: age(item["created_at"], datetime.now(UTC))),
            Column("BY", lambda item: item["created_by"], wide=True),
            Column("ID", lambda item: item["id"], wide=True),
            Column("NOTE", lambda item: item["note"]),
        ),
        identity=lambda item: item["id"],
        empty="There is no rollout. Start one:  homeport deploy APP -l region=eu --wave 1 --wave 100%",
    )
    client = Client(settings.url)
    show_list(settings, listing, client, "/api/v1/rollouts", watch=watch, state=state, name=name)


@rollouts.command("show")
@click.argument("rollout", shell_complete=complete_rollouts)
@connected
@formatted
@pass_settings
def show_rollout(settings: Settings, rollout: str) -> None:
    """Show one rollout: its waves, and the sites that failed or are on hold."""
    found = Client(settings.url).get(f"/api/v1/rollouts/{rollout}")
    if settings.is_data:
        print_data(settings, found)
    else:
        _print(settings, found)


@rollouts.command("watch")
@click.argument("rollout", shell_complete=complete_rollouts)
@click.option("--timeout", default=86_400.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@connected
@formatted
@pass_settings
@click.pass_context
def watch_rollout(ctx: click.Context, settings: Settings, rollout: str, timeout: float) -> None:
    """Print what happens to a rollout until it has ended."""
    client = Client(settings.url)
    found = client.get(f"/api/v1/rollouts/{rollout}")
    if not settings.is_data:
        click.echo(f"{found['name']} {found['app_version']} is {found['state']}. {found['note']}".rstrip())
    try:
        ctx.exit(follow(settings, client, found["id"], after=None, timeout_seconds=timeout))
    except KeyboardInterrupt:
        return


@rollouts.command("pause")
@click.argument("rollout", shell_complete=complete_rollouts)
@connected
@formatted
@pass_settings
def pause(settings: Settings, rollout: str) -> None:
    """Begin no further wave. Waves under way continue."""
    _steer(settings, rollout, "pause", "no further wave begins until it is resumed")


@rollouts.command("resume")
@click.argument("rollout", shell_complete=complete_rollouts)
@connected
@formatted
@pass_settings
def resume(settings: Settings, rollout: str) -> None:
    """Resume a rollout that is paused or has stopped."""
    _steer(settings, rollout, "resume", "resumed; it pauses again if the cause is still there")


@rollouts.command("abort")
@click.argument("rollout", shell_complete=complete_rollouts)
@connected
@formatted
@pass_settings
def abort(settings: Settings, rollout: str) -> None:
    """End a rollout permanently. What is deployed stays; sites that join later do not get it."""
    _steer(settings, rollout, "abort", "no further wave comes; what is deployed stays")


def _steer(settings: Settings, rollout: str, word: str, meaning: str) -> None:
    found = Client(settings.url).post(f"/api/v1/rollouts/{rollout}/{word}", {})
    if settings.is_data:
        print_data(settings, found)
    else:
        done(f"{found['name']} {found['app_version']} is {found['state']}: {meaning}")


def _print(settings: Settings, found: Json) -> None:
    now = datetime.now(UTC)
    print_facts(
        [
            ("rollout", found["id"]),
            ("name", found["name"]),
            ("app", f"{found['app_category']}/{found['app_name']} {found['app_version']}"),
            ("state", found["state"]),
            ("note", found["note"]),
            ("selector", found["selector"]),
            ("sites", f"{found['sites']}: {_counts(found['counts'])}"),
            ("threshold", f"{found['threshold']} installed, watched for {found['bake']}"),
            ("created", f"{age(found['created_at'], now)} ago by {found['created_by']}"),
        ]
    )
    click.echo()
    columns = (
        Column("WAVE", lambda wave: str(wave["number"])),
        Column("SIZE", lambda wave: wave["size"]),
        Column("SITES", lambda wave: str(wave["sites"]) if wave["begun"] else "-"),
        Column("STANDING", lambda wave: _counts(wave["counts"])),
    )
    print_table(settings, columns, found["waves"])
    for title, members in (("FAILING", found["failing"]), ("HELD", found.get("held", []))):
        if members:
            click.echo()
            print_table(
                settings,
                (
                    Column(title, lambda member: member["site"]),
                    Column("WAVE", lambda member: str(member["wave"] or "-")),
                    Column("WHY", lambda member: member["why"]),
                ),
                members,
            )


def _progress(item: Item) -> str:
    return f"{sum(wave['begun'] for wave in item['waves'])}/{len(item['waves'])}"


def _counts(counts: Item) -> str:
    return ", ".join(f"{count} {standing}" for standing, count in counts.items()) or "-"
