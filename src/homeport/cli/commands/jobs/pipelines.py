"""`homeport pipelines`: steps that are jobs, inference requests, HTTP calls and other pipelines."""

import json
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_pipelines, complete_runs, complete_sites
from homeport.cli.exits import Exit
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings, quieted
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.output import (
    Column,
    Item,
    TableListing,
    done,
    print_data,
    print_facts,
    print_table,
    printable,
    show_list,
    write_output,
)
from homeport.core.values.durations import duration_text
from homeport.errors import NotFound, TransientError

LAST_LINES: Final = 10
STATES: Final = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")
ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED")
STEP_ENDED: Final = ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED")
LOOK_SECONDS: Final = 0.3
WAIT_SECONDS: Final = 10.0
"""How long the server keeps a request for a run that does not change."""
LOG_SECONDS: Final = 1.0
"""The same while logs are followed: what jobs print does not change their run."""
SILENCE_SECONDS_MAX: Final = 120.0
"""How long an attached command waits for a server that does not answer. The run continues without it."""
_MARKS: Final = {"SUCCEEDED": ("✓", "green"), "FAILED": ("✗", "red"), "CANCELLED": ("✗", "yellow")}


@click.group(cls=Group)
def pipelines() -> None:
    """Run pipelines of jobs, inference requests and HTTP calls.

    A RUN is named by its id, or any unique prefix of that.
    """


@pipelines.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a pipeline's file, for editors.")
@formatted
@pass_settings
@click.pass_context
def validate_pipelines(ctx: click.Context, settings: Settings, /, *, files: Sequence[Path], schema: bool) -> None:
    """Check pipeline files, without a server. Each problem names its field and line."""
    from homeport.catalog.pipeline import parse_pipeline, pipeline_schema  # noqa: PLC0415 - start-up time

    if schema:
        click.echo(json.dumps(pipeline_schema(), indent=2))
        return
    if not files:
        raise click.UsageError("Name a file, or use --schema.")
    found = [parse_pipeline(_content(file), str(file)) for file in files]
    if settings.is_data:
        print_data(settings, [{"name": each.name, "steps": [step.name for step in each.steps]} for each in found])
        return
    for file, each in zip(files, found, strict=True):
        count = len(each.steps)
        done(f"{file} is pipeline {each.name} with {count} {'step' if count == 1 else 'steps'}")


@pipelines.command("run")
@click.argument("pipeline", shell_complete=complete_pipelines, metavar="FILE|NAME")
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input; repeatable.")
@click.option("--id", "run_id", help="A UUID of your own: asking twice is running once.")
@click.option("-d", "--detach", is_flag=True, help="Print the id and return immediately.")
@quieted
@connected
@formatted
@pass_settings
@click.pass_context
def run_pipeline(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    pipeline: str,
    inputs: Sequence[str],
    run_id: str | None,
    detach: bool,
) -> None:
    """Run a pipeline's file, or a saved pipeline, and follow it to its end.

    \b
    homeport pipelines run nightly.yaml
    homeport pipelines run nightly.yaml --input day=monday --input 'cameras=["a", "b"]'
    homeport pipelines run nightly --detach

    Exits with 0 where the run succeeds. Ctrl-C leaves it running; `pipelines cancel` ends it.
    """
    client = Client(settings.url)
    body = _wanted(client, pipeline)
    # An id of our own, so that an answer that was lost does not run it twice.
    made = client.post(
        "/api/v1/pipeline-runs",
        {"id": run_id or str(uuid.uuid4()), **body, "inputs": _inputs(client, body, inputs)},
    )
    if detach:
        if settings.is_data:
            print_data(settings, made)
        elif settings.quiet:
            click.echo(made["id"])
        else:
            done(f"run {made['id']}; see it:  homeport pipelines show {made['id'][:8]}")
        return
    found = _follow(client, made["id"], says=not settings.is_data and not settings.quiet)
    if settings.is_data:
        print_data(settings, found)
    else:
        _print_last_lines(client, found)
        _print_outputs(found)
    ctx.exit(Exit.DONE if found["state"] == "SUCCEEDED" else Exit.FAILED)


@pipelines.command("list")
@click.option("--saved", is_flag=True, help="The saved pipelines, not the runs.")
@click.option("--pipeline", shell_complete=complete_pipelines, help="Only runs of this pipeline.")
@click.option("--site", shell_complete=complete_sites, help="Only this site's.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only runs in this state.")
@listed
@pass_settings
def list_pipelines(
    settings: Settings,
    /,
    *,
    watch: bool,
    saved: bool,
    pipeline: str | None,
    site: str | None,
    state: str | None,
) -> None:
    """List the runs, the newest first; with --saved the pipelines that are kept by name."""
    client = Client(settings.url)
    if saved:
        show_list(settings, _SAVED, client, "/api/v1/pipelines", watch=watch, site=site)
        return
    query = {"pipeline": pipeline, "site": site, "state": state}
    show_list(settings, _RUNS, client, "/api/v1/pipeline-runs", watch=watch, **query)


@pipelines.command("show")
@click.argument("run", shell_complete=complete_runs, metavar="RUN|NAME")
@connected
@formatted
@pass_settings
def show_pipeline(settings: Settings, /, *, run: str) -> None:
    """Show a run with its steps and why they are as they are, or a saved pipeline by its name."""
    client = Client(settings.url)
    found = _run_or_saved(client, run)
    if settings.is_data:
        print_data(settings, found)
    elif "steps_total" in found:
        _print_run(settings, found)
    else:
        _print_saved(found)


@pipelines.command("logs")
@click.argument("run", shell_complete=complete_runs)
@click.argument("step", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the run until it has ended.")
@click.option("--result", "result_only", is_flag=True, help="Print the step's output as JSON, not its log.")
@connected
@formatted
@pass_settings
def pipeline_logs(settings: Settings, /, *, run: str, step: str | None, follow: bool, result_only: bool) -> None:
    """Print the log of a step, or of all steps of a run."""
    client = Client(settings.url)
    if follow:
        _follow_logs(client, run, step)
        return
    found = client.get(f"/api/v1/pipeline-runs/{run}")
    names = [each["name"] for each in found["steps"]] if step is None else [step]
    results = [client.get(f"/api/v1/pipeline-runs/{found['id']}/steps/{name}") for name in names]
    if settings.is_data:
        print_data(settings, results)
        return
    for result in results:
        for item in result["items"]:
            if result_only:
                click.echo(json.dumps(item["output"], ensure_ascii=False, indent=2))
                continue
            number = f"[{item['number']}]" if len(result["items"]) > 1 else ""
            if len(names) > 1 or number:
                click.echo(click.style(f"== {result['step']}{number} ==", bold=True))
            write_output(item["log"], nl=not item["log"].endswith("\n"))


@pipelines.command("cancel")
@click.argument("run", shell_complete=complete_runs)
@connected
@formatted
@pass_settings
def cancel_pipeline(settings: Settings, /, *, run: str) -> None:
    """Cancel a run. What is under way is stopped."""
    found = Client(settings.url).post(f"/api/v1/pipeline-runs/{run}/cancel", {})
    if settings.is_data:
        print_data(settings, found)
    elif found["state"] == "CANCELLED":
        done(f"run {found['id']} is cancelled")
    elif found["state"] in ENDED:
        done(f"run {found['id']} has already ended: it is {found['state']}")
    else:
        done(f"run {found['id']} is being cancelled")


@pipelines.command("save")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--paused", is_flag=True, help="Its schedule and webhook start nothing until it is resumed.")
@connected
@formatted
@pass_settings
def save_pipeline(settings: Settings, /, *, file: Path, paused: bool) -> None:
    """Keep a pipeline under its name, for its schedule, its webhook and other pipelines."""
    body: Json = {"source": _content(file).decode(errors="replace"), **({"paused": True} if paused else {})}
    found = Client(settings.url).post("/api/v1/pipelines", body)
    if settings.is_data:
        print_data(settings, found)
    else:
        done(f"pipeline {found['name']} saved as version {found['version']}{_due(found)}")


@pipelines.command("pause")
@click.argument("name", shell_complete=complete_pipelines)
@connected
@formatted
@pass_settings
def pause_pipeline(settings: Settings, /, *, name: str) -> None:
    """Start no runs of a saved pipeline by its schedule or webhook. Runs under way continue."""
    _set_paused(settings, name, "pause")


@pipelines.command("resume")
@click.argument("name", shell_complete=complete_pipelines)
@connected
@formatted
@pass_settings
def resume_pipeline(settings: Settings, /, *, name: str) -> None:
    """Start runs by schedule and webhook again. Times that passed meanwhile are not made up for."""
    _set_paused(settings, name, "resume")


def _set_paused(settings: Settings, name: str, word: str) -> None:
    found = Client(settings.url).post(f"/api/v1/pipelines/{name}/{word}", {})
    if settings.is_data:
        print_data(settings, found)
    else:
        what = "; its schedule and webhook start nothing" if found["paused"] else _due(found)
        done(f"pipeline {found['name']} {word}d{what}")


def _due(found: Json) -> str:
    if found["paused"]:
        return "; paused: its schedule and webhook start no runs"
    return f"; next run {found['next_at']}" if found["next_at"] else ""


@pipelines.command("remove")
@click.argument("name", shell_complete=complete_pipelines)
@connected
@pass_settings
def remove_pipeline(settings: Settings, /, *, name: str) -> None:
    """Remove a saved pipeline. Its runs stay."""
    Client(settings.url).delete(f"/api/v1/pipelines/{name}")
    done(f"pipeline {name} removed")


def _follow_logs(client: Client, run: str, step: str | None) -> None:
    """Prints what is new in the logs, each line with its step, until the run has ended."""
    said: dict[str, str] = {}
    version: int | None = None
    while True:
        found = client.get(f"/api/v1/pipeline-runs/{run}", after=version, wait_seconds=LOG_SECONDS)
        for name in [each["name"] for each in found["steps"] if each["items"] and step in (None, each["name"])]:
            result = client.get(f"/api/v1/pipeline-runs/{found['id']}/steps/{name}")
            for item in result["items"]:
                label = f"{name}[{item['number']}]" if len(result["items"]) > 1 else name
                log = item["log"]
                # A line that is not complete waits for its end.
                shown = log if result["state"] in STEP_ENDED else log[: log.rfind("\n") + 1]
                before = said.get(label, "")
                said[label] = shown
                for line in (shown.removeprefix(before) if shown.startswith(before) else shown).splitlines():
                    click.echo(f"{click.style(label, fg='cyan')} {printable(line)}")
        if found["state"] in ENDED:
            return
        version = _version(found)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}.") from error


def _wanted(client: Client, pipeline: str) -> Json:
    """A file where there is one, checked here so that a problem is at its own name; else that of a saved pipeline."""
    from homeport.catalog.pipeline import parse_pipeline  # noqa: PLC0415 - start-up time

    path = Path(pipeline)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        content = _content(path)
        parse_pipeline(content, str(path))
        return {"source": content.decode(errors="replace")}
    return {"pipeline": pipeline}


def _inputs(client: Client, body: Json, entries: Sequence[str]) -> dict[str, Any]:
    """Typed as the pipeline declares them: `7` is text for an input of type string."""
    from homeport.catalog.pipeline import parse_pipeline  # noqa: PLC0415 - start-up time
    from homeport.core.pipelines.values import from_text  # noqa: PLC0415

    if not entries:
        return {}
    source = body.get("source") or client.get(f"/api/v1/pipelines/{body['pipeline']}")["source"]
    inputs = parse_pipeline(source.encode(), "pipeline.yaml").inputs
    found = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--input {entry}: write it as NAME=VALUE.")
        found[name] = from_text(value, inputs[name].type) if name in inputs else value
    return found


def _follow(client: Client, run_id: str, *, says: bool) -> Json:
    """Until it has ended. A server that is restarted meanwhile is waited for."""
    said: dict[str, str] = {}
    silent_since: float | None = None
    version: int | None = None
    while True:
        try:
            found = client.get(f"/api/v1/pipeline-runs/{run_id}", after=version, wait_seconds=WAIT_SECONDS)
        except TransientError:
            silent_since = silent_since or time.monotonic()
            if time.monotonic() - silent_since > SILENCE_SECONDS_MAX:
                raise
            time.sleep(1.0)
            continue
        silent_since = None
        for step in found["steps"]:
            line = _line(step)
            if says and line != said.get(step["name"]) and step["state"] != "WAITING":
                said[step["name"]] = line
                click.echo(line, err=True)
        if found["state"] in ENDED:
            return found
        version = _version(found)


def _version(found: Json) -> int | None:
    """For the next request, which waits for a change. A central of the release before cannot wait."""
    version = found.get("version")
    if version is None:
        time.sleep(LOOK_SECONDS)
    return version


def _line(step: Item) -> str:
    mark, color = _MARKS.get(step["state"], ("·", "cyan"))
    what = step["state"].lower()
    reason = f": {step['reason']}" if step["reason"] else ""
    count = f" ({len(step['items'])} items)" if len(step["items"]) > 1 else ""
    return f"{click.style(mark, fg=color)} {step['name']}{count} {what}{printable(reason)}"


def _print_last_lines(client: Client, run: Json) -> None:
    """Of the steps that failed, as a failed deploy shows them."""
    for name in (step["name"] for step in run["steps"] if step["state"] == "FAILED"):
        result = client.get(f"/api/v1/pipeline-runs/{run['id']}/steps/{name}")
        last = [line for item in result["items"] for line in item["log"].splitlines()][-LAST_LINES:]
        for line in last:
            click.echo(f"  {click.style(name, fg='cyan')} {printable(line)}", err=True)
        if last:
            click.echo(f"  All of it:  homeport pipelines logs {run['id'][:8]} {name}", err=True)


def _print_outputs(found: Json) -> None:
    mark, color = _MARKS[found["state"]]
    reason = f": {printable(found['reason'])}" if found["reason"] else ""
    click.echo(
        f"{click.style(mark, fg=color)} run {found['id'][:8]} of {found['pipeline']} is {found['state']}{reason}",
        err=True,
    )
    for name, value in found["outputs"].items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        click.echo(f"{name}: {printable(shown)}")


def _print_run(settings: Settings, found: Json) -> None:
    now = datetime.now(UTC)
    print_facts(
        [
            ("run", found["id"]),
            ("pipeline", found["pipeline"]),
            ("state", found["state"]),
            ("reason", found["reason"]),
            ("site", found["site"] or ""),
            ("trigger", found["trigger"]),
            ("created", f"{age(found['created_at'], now)} ago by {found['created_by']}"),
            ("took", _took(found)),
            ("inputs", json.dumps(found["inputs"], ensure_ascii=False) if found["inputs"] else ""),
            ("outputs", json.dumps(found["outputs"], ensure_ascii=False) if found["outputs"] else ""),
        ]
    )
    if found["steps"]:
        click.echo()
        print_table(settings, _STEPS, found["steps"])


def _print_saved(found: Json) -> None:
    print_facts(
        [
            ("pipeline", found["name"]),
            ("version", str(found["version"])),
            ("description", found["description"]),
            ("site", found["site"] or ""),
            ("schedule", f"{found['schedule']} {found['timezone']}" if found["schedule"] else ""),
            ("next run", "paused" if found["paused"] else found["next_at"] or ""),
            ("webhook", f"/api/v1/pipelines/{found['name']}/webhook" if found["webhook"] else ""),
            ("steps", ", ".join(found["steps"])),
            ("saved", f"{age(found['updated_at'], datetime.now(UTC))} ago by {found['saved_by']}"),
        ]
    )
    click.echo()
    write_output(found["source"], nl=not found["source"].endswith("\n"))


def _run_or_saved(client: Client, text: str) -> Json:
    """A name of a pipeline is never a run's id, unless it looks like the beginning of one."""
    if all(letter in "0123456789abcdef-" for letter in text):
        try:
            return client.get(f"/api/v1/pipeline-runs/{text}")
        except NotFound:
            try:
                return client.get(f"/api/v1/pipelines/{text}")
            except NotFound:
                pass
            raise
    return client.get(f"/api/v1/pipelines/{text}")


def _took(item: Item) -> str:
    if item["started_at"] is None:
        return "-"
    begin = datetime.fromisoformat(item["started_at"])
    end = datetime.now(UTC) if item["finished_at"] is None else datetime.fromisoformat(item["finished_at"])
    seconds = max(0.0, (end - begin).total_seconds())
    return f"{seconds:.1f}s" if seconds < 10 else duration_text(seconds)


def _attempts(step: Item) -> str:
    return str(max((item["attempt"] for item in step["items"]), default=0) or "-")


def _progress(step: Item) -> str:
    ended = sum(item["state"] in STEP_ENDED for item in step["items"])
    return f"{ended}/{len(step['items'])}" if step["items"] else "-"


_RUNS: Final = TableListing(
    key="runs",
    columns=(
        Column("RUN", lambda item: item["id"][:8]),
        Column("PIPELINE", lambda item: item["pipeline"]),
        Column("STATE", lambda item: item["state"], vital=True),
        Column("STEPS", lambda item: f"{item['steps_ended']}/{item['steps_total']}"),
        Column("TOOK", _took),
        Column("AGE", lambda item: age(item["created_at"], datetime.now(UTC))),
        Column("TRIGGER", lambda item: item["trigger"]),
        Column("BY", lambda item: item["created_by"], wide=True),
        Column("SITE", lambda item: item["site"] or "-", wide=True),
        Column("ID", lambda item: item["id"], wide=True),
        Column("REASON", lambda item: item["reason"] or "-"),
    ),
    identity=lambda item: item["id"],
    empty="There is no run. Start one:  homeport pipelines run FILE",
)
_SAVED: Final = TableListing(
    key="pipelines",
    columns=(
        Column("PIPELINE", lambda item: item["name"]),
        Column("VERSION", lambda item: str(item["version"])),
        Column("STEPS", lambda item: str(len(item["steps"]))),
        Column("SCHEDULE", lambda item: item["schedule"] or "-"),
        Column("NEXT", lambda item: "paused" if item["paused"] else item["next_at"] or "-"),
        Column("WEBHOOK", lambda item: "yes" if item["webhook"] else "-"),
        Column("SITE", lambda item: item["site"] or "-", wide=True),
        Column("BY", lambda item: item["saved_by"], wide=True),
    ),
    identity=lambda item: item["name"],
    empty="There is no saved pipeline. Save one:  homeport pipelines save FILE",
)
_STEPS: Final = (
    Column("STEP", lambda step: step["name"]),
    Column("KIND", lambda step: step["kind"]),
    Column("STATE", lambda step: step["state"], vital=True),
    Column("ITEMS", _progress),
    Column("ATTEMPT", _attempts),
    Column("TOOK", _took),
    Column("NEEDS", lambda step: ", ".join(step["needs"]) or "-"),
    Column("REASON", lambda step: step["reason"] or "-"),
)
