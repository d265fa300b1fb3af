"""`homeport jobs`: commands that run to completion on the machines of a site."""

import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_jobs, complete_nodes, complete_sites
from homeport.cli.exits import Exit
from homeport.cli.lazy import Group, MayBeEmpty
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings, quieted
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.output import (
    Column,
    Item,
    TableListing,
    done,
    print_data,
    print_facts,
    printable,
    show_list,
    write_output,
)
from homeport.core.values.durations import duration_text, seconds_of
from homeport.errors import TransientError

STATES: Final = ("PENDING", "ASSIGNED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")
ENDED: Final = ("COMPLETED", "FAILED", "CANCELLED")
WAIT_SECONDS: Final = 5.0
RESULT_SECONDS: Final = 0.1
WAITS_SECONDS: Final = 1.5
"""After this, `jobs run` prints what the job waits for."""
SILENCE_SECONDS_MAX: Final = 120.0
"""How long an attached command waits for a server that does not answer. The job continues without it."""
COMMAND_SHOWN_MAX: Final = 120
"""In the list; `jobs show` and -o json have all of it."""
SITE: Final = click.option("--site", shell_complete=complete_sites, help="Where several sites have a job of this id.")


@click.group(cls=Group)
def jobs() -> None:
    """Run commands on your machines: run, list, follow, cancel.

    A JOB is named by its id, or any unique prefix of that.
    """


@jobs.command("run", context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- [COMMAND]...")
@click.option("--image", help="Run it in a container of this image; without it, as a command of the machine.")
@click.option(
    "--entrypoint",
    type=MayBeEmpty(),
    default="",
    help="A program in place of the image's own entrypoint; COMMAND is what it gets.",
)
@click.option("--model", help="Ask this model instead: the words of COMMAND are the prompt.")
@click.option("--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Of its answer.")
@click.option("--site", shell_complete=complete_sites, help="At this site [one that can run it].")
@click.option("--node", shell_complete=complete_nodes, help="On this node.")
@click.option("-l", "--selector", help="On a node with these labels: zone=cellar,gpu.")
@click.option("--cpu", type=float, default=0.0, help="Processor cores that it needs.")
@click.option("--memory", default="", help="Memory that it needs and may use, such as 512Mi.")
@click.option("--gpu", "gpus", type=int, default=0, help="How many GPUs it gets.")
@click.option("-e", "--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable; repeatable.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="[NAME=]SECRET",
    help="A secret of the site as a variable; repeatable.",
)
@click.option("--timeout", default="1h", show_default=True, metavar="DURATION", help="Killed after this: 30s, 2h.")
@click.option("--retries", type=int, default=0, show_default=True, help="Further attempts after a failure.")
@click.option("--artifact", "artifacts", multiple=True, metavar="PATH", help="A file to keep; repeatable.")
@click.option("--id", "job_id", help="An id of your own: submitting it twice is submitting it once.")
@click.option("-d", "--detach", is_flag=True, help="Print the id and return immediately.")
@quieted
@connected
@formatted
@pass_settings
@click.pass_context
def run_job(ctx: click.Context, settings: Settings, /, *, detach: bool, **options: Any) -> None:
    """Run a command, or ask a model, to its end and print its output.

    \b
    homeport jobs run --image debian:12 -- sh -c 'echo hello'
    homeport jobs run --node pi-4 -- uname -a
    homeport jobs run --image backup:1 --secret S3_KEY --timeout 2h --retries 2 --detach
    homeport jobs run --model qwen --detach -- Write a haiku about harbours

    Exits with the job's own exit code, and with 1 where it did not end by itself. Ctrl-C cancels it.
    """
    client = Client(settings.url)
    made = client.post("/api/v1/jobs", _submission(options))
    if detach:
        _show_submitted(settings, made)
        return
    try:
        # A program gets one document, which has the output.
        _follow(client, made, says=not settings.is_data)
    except KeyboardInterrupt:
        client.post(f"/api/v1/jobs/{made['id']}/cancel", {}, site=made["site"])
        click.echo(f"\ncancelled job {made['id']}", err=True)
        ctx.exit(130)
    found = _ended(client, made)
    if settings.is_data:
        print_data(settings, found)
    ctx.exit(_verdict(found))


@jobs.command("list")
@click.option("--site", shell_complete=complete_sites, help="Only this site's.")
@click.option("--node", shell_complete=complete_nodes, help="Only those of this node.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only those in this state.")
@listed
@pass_settings
def list_jobs(settings: Settings, /, *, watch: bool, site: str | None, node: str | None, state: str | None) -> None:
    """List the jobs, the newest first."""
    listing = TableListing(
        key="jobs",
        columns=(
            Column("JOB", lambda item: _short(item["id"])),
            Column("STATE", lambda item: item["state"], vital=True),
            Column("SITE", lambda item: item["site"]),
            Column("NODE", lambda item: item["node"] or "-"),
            Column("EXIT", lambda item: "-" if item["exit_code"] is None else str(item["exit_code"])),
            Column("TOOK", _took),
            Column("AGE", lambda item: age(item["created_at"], datetime.now(UTC))),
            Column("IMAGE", lambda item: item["image"] or "-", wide=True),
            Column("BY", lambda item: item["created_by"], wide=True),
            Column("ID", lambda item: item["id"], wide=True),
            Column("COMMAND", _command_in_list),
        ),
        identity=lambda item: item["id"],
        empty="There is no job. Run one:  homeport jobs run --image debian:12 -- echo hello",
    )
    client = Client(settings.url)
    show_list(settings, listing, client, "/api/v1/jobs", watch=watch, site=site, node=node, state=state)


@jobs.command("show")
@click.argument("job", shell_complete=complete_jobs)
@SITE
@connected
@formatted
@pass_settings
def show_job(settings: Settings, /, *, job: str, site: str | None) -> None:
    """Show one job: what it runs, how it went, and the end of its output."""
    found = Client(settings.url).get(f"/api/v1/jobs/{job}", site=site)
    if settings.is_data:
        print_data(settings, found)
    else:
        _print(found)


@jobs.command("logs")
@click.argument("job", shell_complete=complete_jobs)
@click.option("-f", "--follow", is_flag=True, help="Follow it until it has ended.")
@SITE
@connected
@pass_settings
def job_logs(settings: Settings, /, *, job: str, follow: bool, site: str | None) -> None:
    """Print what a job has printed."""
    client = Client(settings.url)
    found = client.get(f"/api/v1/jobs/{job}", site=site)
    if follow:
        _follow(client, found)
        return
    after, generation, is_complete = 0, 0, False
    while not is_complete:
        query = {"site": found["site"], "after": after, "generation": generation}
        part = client.get(f"/api/v1/jobs/{found['id']}/output", **query)
        if part["start"] > after and generation:
            _remark(_missing(found, part["start"] - after), "")
        write_output(part["text"])
        is_complete = part["complete"] or not part["text"]
        after, generation = part["next"], part["generation"]


@jobs.command("cancel")
@click.argument("job", shell_complete=complete_jobs)
@SITE
@connected
@formatted
@pass_settings
def cancel_job(settings: Settings, /, *, job: str, site: str | None) -> None:
    """Cancel a job. One that runs is stopped by its node."""
    found = Client(settings.url).post(f"/api/v1/jobs/{job}/cancel", {}, site=site)
    if settings.is_data:
        print_data(settings, found)
    elif found["state"] == "CANCELLED":
        done(f"job {found['id']} is cancelled")
    elif found["state"] in ENDED:
        done(f"job {found['id']} has already ended: it is {found['state']}")
    else:
        done(f"job {found['id']} is being cancelled")


@jobs.command("artifact")
@click.argument("job", shell_complete=complete_jobs)
@click.argument("path")
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file [stdout].")
@SITE
@connected
@pass_settings
def job_artifact(settings: Settings, /, *, job: str, path: str, to: Path | None, site: str | None) -> None:
    """Download a file that a job has left."""
    client = Client(settings.url)
    content = b"".join(client.lines(f"/api/v1/jobs/{job}/artifacts/{path.lstrip('/')}", site=site))
    if to is None:
        sys.stdout.buffer.write(content)
    else:
        to.write_bytes(content)
        done(f"{len(content)} bytes in {to}")


def _submission(options: dict[str, Any]) -> Json:
    if options["model"] and not options["command"]:
        raise click.UsageError("Give the prompt, after two dashes:  homeport jobs run --model MODEL -- Say hello")
    if not options["command"] and not options["image"]:
        raise click.UsageError("Give the command to run, after two dashes:  homeport jobs run -- uname -a")
    seconds = seconds_of(options["timeout"])
    if seconds is None:
        raise click.UsageError(f"--timeout {options['timeout']}: write it as 30s, 10m or 2h.")
    return {
        # Of our own, so that an answer that was lost does not run it twice.
        "id": options["job_id"] or str(uuid.uuid4()),
        "site": options["site"],
        "command": [] if options["model"] else list(options["command"]),
        # Only where it is asked for: a server of an earlier release does not know the field.
        **_inference(options),
        "image": options["image"] or "",
        "entrypoint": options["entrypoint"],
        "environment": _variables(options["environment"]),
        "secrets": _secrets(options["secrets"]),
        "node": options["node"],
        "selector": options["selector"],
        "cpu": options["cpu"],
        "memory": options["memory"],
        "gpus": options["gpus"],
        "timeout_seconds": seconds,
        "retries": options["retries"],
        "artifacts": list(options["artifacts"]),
    }


def _inference(options: dict[str, Any]) -> Json:
    if not options["model"]:
        return {}
    prompt = " ".join(options["command"])
    return {"inference": {"model": options["model"], "prompt": prompt, "max_tokens": options["max_tokens"]}}


def _variables(entries: Sequence[str]) -> dict[str, str]:
    values = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--env {entry}: write it as NAME=VALUE.")
        values[name] = value
    return values


def _secrets(entries: Sequence[str]) -> dict[str, str]:
    """`NAME=secret`, or a secret whose name is the variable's too."""
    found = {}
    for entry in entries:
        variable, equals, name = entry.partition("=")
        found[variable if equals else entry.upper().replace("-", "_")] = name if equals else entry
    return found


def _show_submitted(settings: Settings, made: Json) -> None:
    if settings.is_data:
        print_data(settings, made)
    elif settings.quiet:
        click.echo(made["id"])
    else:
        done(f"job {made['id']} at {made['site']}; follow it:  homeport jobs logs -f {_short(made['id'])}")


def _follow(client: Client, job: Json, *, says: bool = True) -> None:
    """Prints its output until it has ended; with `says` false, only waits. Restarts of the server are waited for."""
    after, generation, attempt, is_complete, said, printed = 0, 0, 0, False, "", ""
    silent_since: float | None = None
    began = time.monotonic()
    while not is_complete:
        try:
            part = client.get(
                f"/api/v1/jobs/{job['id']}/output",
                site=job["site"],
                after=after,
                generation=generation,
                wait_seconds=WAIT_SECONDS,
            )
        except TransientError:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > SILENCE_SECONDS_MAX:
                raise
            time.sleep(1.0)
            continue
        silent_since = None
        if part["generation"] != generation:
            if generation:
                is_same = part["attempt"] == attempt
                _remark("interrupted, begins again" if is_same else f"attempt {part['attempt']}", printed)
            after, generation, attempt, printed = 0, part["generation"], part["attempt"], ""
        if part["start"] > after:
            _remark(_missing(job, part["start"] - after), printed)
        is_told = part.get("reason") not in (None, said) and time.monotonic() - began > WAITS_SECONDS
        if part["state"] == "PENDING" and is_told:
            said = part["reason"]
            _remark(printable(said), printed)
        if says:
            write_output(part["text"])
        printed = (part["text"] or printed) if says else ""
        after, is_complete = part["next"], part["complete"]
    if printed and not printed.endswith("\n") and sys.stdout.isatty():
        click.echo()


def _ended(client: Client, job: Json) -> Json:
    """The job with its result. Its output comes from its site, and may be complete a moment before central knows."""
    deadline = time.monotonic() + SILENCE_SECONDS_MAX
    while True:
        try:
            found = client.get(f"/api/v1/jobs/{job['id']}", site=job["site"])
        except TransientError:
            if time.monotonic() > deadline:
                raise
        else:
            if found["state"] in ENDED or time.monotonic() > deadline:
                return found
        time.sleep(RESULT_SECONDS)


def _missing(job: Json, count: int) -> str:
    return f"{count} bytes are no longer here; its lines:  homeport logs job/{_short(job['id'])}"


def _remark(text: str, printed: str) -> None:
    """On a line of its own, also where the output so far has none at its end: an answer comes word by word."""
    is_open = printed and not printed.endswith("\n") and sys.stdout.isatty()
    click.echo(f"{chr(10) if is_open else ''}— {text} —", err=True)


def _verdict(found: Json) -> int:
    if found["state"] == "COMPLETED":
        if found["reason"]:
            click.echo(printable(found["reason"]), err=True)
        return Exit.DONE
    reason = printable(found["reason"])
    # A reason that begins with what the state says already goes on from there: FAILED after 2 attempts: …
    why = reason[len("failed") :] if reason.startswith("failed") else f": {reason}"
    click.echo(f"{click.style('✗', fg='red')} job {_short(found['id'])} {found['state']}{why}", err=True)
    code = found["exit_code"]
    is_own = found["failure"] is not None and found["failure"]["code"] == "EXITED"
    return int(code) if is_own and code and 0 < code < 256 else Exit.FAILED


def _print(found: Json) -> None:
    failure = found["failure"]
    now = datetime.now(UTC)
    print_facts(
        [
            ("job", found["id"]),
            ("state", found["state"]),
            ("reason", found["reason"]),
            ("failure", "" if failure is None else f"{failure['code']}: {failure['message']}"),
            ("exit code", "" if found["exit_code"] is None else str(found["exit_code"])),
            ("site", found["site"]),
            ("node", found["node"] or ""),
            ("image", found["image"]),
            ("entrypoint", found["entrypoint"]),
            ("model", found["inference"]["model"] if found.get("inference") else ""),
            ("prompt" if found.get("inference") else "command", _command(found)),
            ("attempt", f"{found['attempt']} of {found['retries'] + 1}" if found["attempt"] else ""),
            ("took", _took(found)),
            ("timeout", duration_text(found["timeout_seconds"])),
            ("created", f"{age(found['created_at'], now)} ago by {found['created_by']}"),
            ("artifacts", ", ".join(f"{file['path']} ({file['size']} bytes)" for file in found["artifacts"])),
        ]
    )
    if found["output"]:
        click.echo()
        write_output(found["output"])


def _short(job_id: str) -> str:
    """The first part of a UUID; an id of one's own as it is."""
    try:
        uuid.UUID(job_id)
    except ValueError:
        return job_id
    return job_id[:8]


def _command(item: Item) -> str:
    """Of an inference request, what it asks."""
    asked = item.get("inference")
    return str(asked["prompt"]) if asked else shlex.join(item["command"])


def _command_in_list(item: Item) -> str:
    """On one line: a script of many would push the others off the screen."""
    flat = " ".join(_command(item).split())
    return flat if len(flat) <= COMMAND_SHOWN_MAX else f"{flat[: COMMAND_SHOWN_MAX - 1]}…"


def _took(item: Item) -> str:
    if item["started_at"] is None:
        return "-"
    begin = datetime.fromisoformat(item["started_at"])
    end = datetime.now(UTC) if item["finished_at"] is None else datetime.fromisoformat(item["finished_at"])
    seconds = max(0.0, (end - begin).total_seconds())
    return f"{seconds:.1f}s" if seconds < 10 else duration_text(seconds)
