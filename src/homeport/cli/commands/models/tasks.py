"""`homeport tasks`: one inference task at a time, through the queue."""

import uuid
from collections.abc import Iterator

import click

from homeport.cli.api.client import Client, Json, ServerSent
from homeport.cli.commands.models.chat import chosen_model
from homeport.cli.exits import Exit
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import took
from homeport.cli.terminal.output import Column, TableListing, done, print_data, printable, show


@click.group(cls=Group)
def tasks() -> None:
    """List, submit, follow and cancel inference tasks."""


LISTING = TableListing(
    key="tasks",
    columns=(
        Column("TASK", lambda item: item["task_id"]),
        Column("STATE", lambda item: item["state"], vital=True),
        Column("MODEL", lambda item: item["model"]),
        Column("POOL", lambda item: item["pool_id"]),
        Column("PRIORITY", lambda item: item["priority"]),
        Column("FROM", lambda item: item["from"]),
        Column("WAITED", lambda item: took(item["waited_ms"] / 1000)),
        Column("NOTE", lambda item: item["why"]),
    ),
    identity=lambda item: item["task_id"],
    empty="No task waits, and none ran lately. Submit one:  homeport tasks submit 'Hello'",
)


@tasks.command("list")
@listed
@pass_settings
def list_tasks(settings: Settings, /, *, watch: bool) -> None:
    """List the tasks that wait, in their order, and those that ran last. Operators see everybody's."""
    client = Client(settings.url)
    show(settings, LISTING, lambda: {"tasks": _rows(client.get("/v2/queue"))}, watch=watch)


def _rows(queue: Json) -> list[Json]:
    waiting = [
        {**each, "state": f"waits, {each['position']}", "waited_ms": each["waits_ms"]} for each in queue["waiting"]
    ]
    placed = [{**each, "state": "running" if each["running"] else "ended"} for each in queue["placed"]]
    return [*waiting, *placed]


@tasks.command("submit")
@click.argument("prompt")
@click.option("--model", default="", help="The model; the only one there is when left out.")
@click.option("--max-tokens", default=256, show_default=True, type=click.IntRange(1, 50_000))
@click.option("--priority", type=click.Choice(["interactive", "batch"]), default="interactive", show_default=True)
@click.option("--seed", type=int, help="The same seed gives the same answer, with --strict.")
@click.option("--strict", is_flag=True, help="Deterministic, as far as the engine can.")
@click.option("--pool", default="", help="Run it in this pool and nowhere else.")
@click.option("--deadline", default=300.0, show_default=True, metavar="SECONDS", help="When it has to be done.")
@click.option("--no-wait", is_flag=True, help="Print the task's id, and do not follow it.")
@connected
@formatted
@pass_settings
@click.pass_context
def submit(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    prompt: str,
    model: str,
    max_tokens: int,
    priority: str,
    seed: int | None,
    strict: bool,
    pool: str,
    deadline: float,
    no_wait: bool,
) -> None:
    """Submit a task and print its tokens as they come."""
    client = Client(settings.url)
    body: Json = {
        "task_id": str(uuid.uuid4()),
        "session_id": str(uuid.uuid4()),
        "workload": "completion",
        "model_ref": chosen_model(client, model),
        "engine": "any",
        "ctx": 0,
        "priority": priority,
        "max_tokens": max_tokens,
        "deadline_ms": int(deadline * 1000),
        "prompt": prompt,
        "determinism": "strict" if strict else "best_effort",
        **({"seed": seed} if seed is not None else {}),
        **({"placement": {"mode": "pin", "pin_pool_id": pool}} if pool else {}),
    }
    accepted = client.post("/v2/tasks", body)
    if no_wait:
        print_data(settings, accepted) if settings.is_data else click.echo(accepted["task_id"])
        return
    if not settings.is_data:
        for step in accepted["preparation"]["steps"]:
            click.echo(f"  {step['status']:<8}  {printable(step['description'])}{_size(step)}", err=True)
    ctx.exit(_follow(settings, client, accepted["task_id"]))


@tasks.command("watch")
@click.argument("task")
@connected
@formatted
@pass_settings
@click.pass_context
def watch(ctx: click.Context, settings: Settings, task: str) -> None:
    """Print the tokens of a task as they come. Leaving with Ctrl-C cancels the task."""
    ctx.exit(_follow(settings, Client(settings.url), task))


@tasks.command("cancel")
@click.argument("task")
@connected
@formatted
@pass_settings
def cancel(settings: Settings, task: str) -> None:
    """Cancel a task; its slot is free at once."""
    Client(settings.url).post(f"/v2/tasks/{task}/cancel", {})
    done(f"task {task} cancelled")


def _size(step: Json) -> str:
    total, done = step.get("bytes_total"), step.get("bytes_done", 0)
    share = f"{100 * done // total} % of " if total and done else ""
    return f"  ({share}{total:,} bytes)" if total else ""


def _follow(settings: Settings, client: Client, task_id: str) -> int:
    for event in _events(client, task_id):
        if settings.is_data:
            print_data(settings, {"event": event.name, **event.data}, compact=True)
        elif event.name == "token":
            click.echo(printable(str(event.data["t"])), nl=False)
        if event.name == "error":
            if not settings.is_data:
                click.echo()
                click.echo(f"{event.data['code']}: {event.data.get('message', '')}", err=True)
            return Exit.FAILED
    if not settings.is_data:
        click.echo()
    return Exit.DONE


def _events(client: Client, task_id: str) -> Iterator[ServerSent]:
    yield from client.stream(f"/v2/tasks/{task_id}/events")
