"""`homeport logs`: what containers, jobs and roles write."""

from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.completers import complete_deployments, complete_sites
from homeport.cli.api.feed import Feed
from homeport.cli.api.finding import find_deployment
from homeport.cli.lazy import MayBeEmpty
from homeport.cli.options import FILTER, Settings, connected, formatted, pass_settings
from homeport.cli.terminal.ages import clock
from homeport.cli.terminal.moments import SINCE, UNTIL
from homeport.cli.terminal.output import print_data, printable
from homeport.core.logs.line import GAP, LEVELS, SourceKind
from homeport.errors import InvalidInput, NotFound
from homeport.jobs.node.output import BOOKKEEPING

PAGE: Final = 1_000
SIGNS: Final = {"error": "✗", "warning": "!", "debug": "·"}
COLOURS: Final = {"error": "red", "warning": "yellow", "debug": "bright_black"}
KINDS: Final = ("node", "site", "job", "deployment")
HIDDEN: Final = frozenset({GAP, "stream"})
"""Fields that are shown otherwise, or only with -o json."""
HINT: Final = "Give a deployment (hello@home), node/NAME, job/ID, site/NAME or central."


@click.command()
@click.argument("target", required=False, shell_complete=complete_deployments)
@click.option("-f", "--follow", is_flag=True, help="Follow new lines.")
@click.option(
    "-n", "--tail", type=click.IntRange(0, 1_000_000), help="Only the last lines [100, or all with --since]."
)
@click.option(
    "--kind", type=click.Choice([each.value for each in SourceKind]), help="Only what sources of this kind write."
)
@click.option("--component", help="Only of this component or compose service.")
@click.option("--node", help="Only what was written on this node.")
@click.option("--site", help="Only of this site.", shell_complete=complete_sites)
@click.option("--level", type=click.Choice(LEVELS), help="Only this level and higher ones.")
@FILTER
@click.option(
    "--grep", "text", type=MayBeEmpty(), metavar="TEXT", help="Only lines that contain this text, in any case."
)
@SINCE
@UNTIL
@connected
@formatted
@pass_settings
def logs(
    settings: Settings,
    /,
    *,
    target: str | None,
    follow: bool,
    tail: int | None,
    since: datetime | None,
    until: datetime | None,
    **narrowed: str | None,
) -> None:
    """Print or follow what containers, jobs and roles write.

    TARGET is a deployment (hello@home), node/NAME, job/ID, site/NAME or central; everything when left out.
    """
    if follow and until is not None:
        raise InvalidInput("With --until there is nothing to follow.", hint="Leave out --until, or --follow.")
    if narrowed.get("text") == "":
        raise InvalidInput("--grep needs a text to look for.", hint="Leave it out for all lines.")
    client = Client(settings.url)
    query: dict[str, Any] = {**_target(client, target), "since": since, "until": until}
    for name, value in narrowed.items():
        if value is not None:
            if query.get(name) not in (None, value):
                raise InvalidInput(f"{target} is not at --{name} {value}.", hint=f"Leave out --{name}.")
            query[name] = value
    show = _Printer(settings)
    count = tail if tail is not None else (None if since is not None else 100)
    feed = None
    if follow:
        # Opened first, so that no line falls between the pages and the stream.
        feed = Feed(client, "/api/v1/logs", has="text", follow=True, **query)
    last = _print_stored(client, query, count, show)
    if not last and not settings.is_data:
        rest = "." if feed is None else "; waiting for more until Ctrl-C."
        click.echo(f"No lines were written, or none that match{rest}", err=True)
    if feed is None:
        return
    try:
        for line in feed:
            if line["id"] > last:
                show(line)
    except KeyboardInterrupt:
        return


def _target(client: Client, target: str | None) -> dict[str, Any]:
    if target is None:
        return {}
    kind, slash, name = target.partition("/")
    kind = kind.removesuffix("s")
    if target == "central":
        return {"kind": "central"}
    if not slash:
        try:
            found = find_deployment(client, target)
        except NotFound as error:
            if any(node["id"] == target for node in client.get("/api/v1/nodes", contains=target)["nodes"]):
                hint = f"A node's own log:  homeport logs node/{target}"
                raise NotFound(f'"{target}" is a node, not a deployment.', hint=hint) from error
            raise
        return {"deployment": found["id"], "site": found["site"]}
    if kind not in KINDS or not name:
        raise InvalidInput(f'"{target}" is nothing that has logs.', hint=HINT)
    if kind == "deployment":
        return _target(client, name)
    return {"kind": kind, kind: _job(client, name) if kind == "job" else name}


def _job(client: Client, name: str) -> str:
    """The whole id: lists show its beginning. Lines outlive their job, which is not there any more then."""
    try:
        return str(client.get(f"/api/v1/jobs/{quote(name, safe='')}")["id"])
    except NotFound:
        if not client.get("/api/v1/logs", kind="job", job=name, limit=1)["lines"]:
            raise
    return name


def _print_stored(client: Client, query: dict[str, Any], count: int | None, show: "_Printer") -> int:
    """Prints the last `count` lines, all where it is None; returns the id of the last one."""
    lines: list[Json] = []
    cursor, last = None, 0
    order = "oldest" if count is None else "newest"
    while count is None or len(lines) < count:
        limit = PAGE if count is None else min(PAGE, count - len(lines))
        page = client.get("/api/v1/logs", order=order, limit=limit, cursor=cursor, **query)
        if count is None:
            for line in page["lines"]:
                show(line)
                last = line["id"]
        else:
            lines += page["lines"]
        cursor = page["next"]
        if cursor is None:
            break
    for line in reversed(lines):
        show(line)
        last = line["id"]
    return last


class _Printer:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, line: Json) -> None:
        if self._settings.is_data:
            print_data(self._settings, line, compact=True)
            return
        level = line["level"]
        source = "/".join(part for part in (line["node"], line["component"] or line["job"]) if part)
        source = source or "/".join(part for part in (line["site"], line["source"]) if part)
        hidden = HIDDEN | BOOKKEEPING if line["job"] else HIDDEN
        fields = "  ".join(f"{name}={value}" for name, value in line["fields"].items() if name not in hidden)
        text = printable(line["text"])
        shown = click.style(text, fg=COLOURS[level]) if level in COLOURS else text
        extra = click.style(f"   {printable(fields)}", dim=True) if fields else ""
        click.echo(f"{clock(line['at'])} {SIGNS.get(level, ' ')} {source}  {shown}{extra}")
