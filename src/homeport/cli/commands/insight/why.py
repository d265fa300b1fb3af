"""`homeport why`: the chain of decisions behind a deployment, a node, a job or a run, to what happens next."""

import re
from typing import Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_explained
from homeport.cli.options import Settings, connected, formatted, pass_settings
from homeport.cli.terminal.ages import clock
from homeport.cli.terminal.output import echo_wrapped, print_data, print_facts
from homeport.errors import InvalidInput

HINT: Final = "Give a deployment (hello@home), a node, job/ID, run/ID or task/ID."
_PATHS: Final = {
    "job": "/api/v1/jobs/{}/why",
    "run": "/api/v1/pipeline-runs/{}/why",
    "deployment": "/api/v1/why/{}",
    "node": "/api/v1/why/{}",
}
"""By the kind before a slash, as `homeport logs` takes it; an s at its end does no harm."""
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


@click.command()
@click.argument("thing", metavar="DEPLOYMENT|NODE|JOB|RUN|TASK", shell_complete=complete_explained)
@connected
@formatted
@pass_settings
def why(settings: Settings, thing: str) -> None:
    """Explain the state of a deployment, a node, a job, a run or a task.

    Every decision from the commit to the container with its reason, then what happens next. A DEPLOYMENT is named by
    NAME, NAME@SITE or its id, a NODE by its name or NODE@SITE, a JOB by job/ID, a RUN of a pipeline by run/ID, an
    inference TASK by its id. For a site itself use --url.
    """
    client = Client(settings.url)
    if is_task_id(thing):
        explain_task(settings, client, thing)
        return
    found = client.get(_path(thing))
    if settings.is_data:
        print_data(settings, found)
        return
    click.echo(f"{found['kind']} {found['name']} is {found['state']}")
    moments = [clock(each["at"]) if each["at"] else "" for each in found["chain"]]
    width, time_width = max(len(each["step"]) for each in found["chain"]), max(map(len, moments))
    before = ""
    for each, moment in zip(found["chain"], moments, strict=True):
        step = "" if each["step"] == before else each["step"]
        before = each["step"]
        head = f"{step.ljust(width)}   {moment.ljust(time_width)}"
        echo_wrapped(f"  {click.style(head, dim=True)}   ", _line(each))


def _path(thing: str) -> str:
    kind, slash, name = thing.partition("/")
    if not slash:
        return f"/api/v1/why/{thing}"
    if kind.removesuffix("s") not in _PATHS or not name:
        raise InvalidInput(f'"{thing}" is nothing that can be explained.', hint=HINT)
    return _PATHS[kind.removesuffix("s")].format(name)


def is_task_id(thing: str) -> bool:
    """With or without `tasks/`: nothing else is named by a UUID."""
    return thing.startswith(("task/", "tasks/")) or _UUID.fullmatch(thing) is not None


def explain_task(settings: Settings, client: Client, thing: str) -> None:
    found = client.get(f"/v2/tasks/{thing.rpartition('/')[2]}/why")
    if settings.is_data:
        print_data(settings, found)
        return
    error = found.get("error") or {}
    print_facts(
        [
            ("state", _task_state(found)),
            ("waits for", str(found.get("waits_for", ""))),
            ("placement", str(found.get("placement", ""))),
            ("waited", f"{found['waited_ms']} ms" if "waited_ms" in found else ""),
            ("queue position", str(found.get("queue_position", ""))),
            ("predicted start", f"{found['predicted_start_ms']} ms" if "predicted_start_ms" in found else ""),
            ("retried", "on another replica" if found.get("retried") else ""),
            ("ended", f"{error.get('code')}: {error.get('message')}" if error else ""),
        ]
    )


def _task_state(found: Json) -> str:
    if found["state"] == "active":
        return "waiting" if found.get("waits_for") else "running"
    return "cancelled" if found.get("canceled") else "ended"


def _line(decision: Json) -> str:
    return f"{decision['what']}: {decision['why']}" if decision["why"] else str(decision["what"])
