"""`homeport audit`: the audit trail. `verify` does not trust the server: it recomputes every hash locally."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from homeport.cli.api.client import Client
from homeport.cli.api.export import export_lines
from homeport.cli.lazy import Group
from homeport.cli.options import Settings, connected, formatted, listed, pass_settings
from homeport.cli.terminal.ages import age
from homeport.cli.terminal.moments import SINCE
from homeport.cli.terminal.output import Column, Item, TableListing, done, print_data, show
from homeport.core.audit.chain import Check, Mark
from homeport.core.model.access import AuditEntry, AuditResult, NewAudit
from homeport.errors import InvalidInput, PermanentError

SHOWN_USUALLY = 50


@click.group(cls=Group)
def audit() -> None:
    """Show who did what, export the audit trail and verify it."""


@audit.command("list")
@click.option("--after", type=click.IntRange(0), help="Those after this position, instead of the newest.")
@click.option("--actor", help="Only what this person, token or machine did.")
@click.option("--action", help="Only this action (deployments.create) or noun (deployments).")
@SINCE
@listed
@pass_settings
def list_audit(settings: Settings, /, watch: bool, after: int | None, **only: str | datetime | None) -> None:
    """List the newest entries, 50 unless --limit says otherwise, oldest first."""
    listing = TableListing(
        key="entries",
        columns=(
            Column("ENTRY", lambda entry: str(entry["position"])),
            Column("AGE", lambda entry: age(entry["at"], datetime.now(UTC))),
            Column("WHO", lambda entry: entry["actor"]),
            Column("ROLE", lambda entry: entry["role"], wide=True),
            Column("FROM", lambda entry: entry["address"]),
            Column("ACTION", lambda entry: entry["action"], vital=True),
            Column("RESULT", lambda entry: entry["result"], vital=True),
            Column("CODE", _why),
            Column("TARGET", lambda entry: entry["target"]),
        ),
        identity=lambda entry: str(entry["position"]),
        empty="Nothing has been done yet, or nothing like that.",
    )
    client = Client(settings.url)
    limit = settings.limit or SHOWN_USUALLY

    def look() -> Item:
        found = client.pages("/api/v1/audit", "entries", limit=limit, after=after, **only)
        entries = sorted(found["entries"], key=lambda entry: int(entry["position"]))
        return {"entries": entries}  # older entries always exist, so `next` is not shown

    show(settings, listing, look, watch=watch)


@audit.command()
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only entries after this position.")
@connected
@pass_settings
def export(settings: Settings, out: Path | None, after: int) -> None:
    """Print every entry as a line of JSON. `homeport audit verify FILE` verifies a saved copy."""
    export_lines(Client(settings.url).lines("/api/v1/audit/export", after=after), out, "entries")


@audit.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--head", metavar="MARK", help="A mark that an earlier verify printed: the trail must still hold it.")
@connected
@formatted
@pass_settings
def verify(settings: Settings, file: Path | None, head: str | None) -> None:
    """Check that no entry was changed, removed, added or moved: of the server, or of an exported FILE."""
    noted = None if head is None else Mark.parse(head)
    if file is not None:
        with click.open_file(str(file), "rb") as lines:
            check = _walk(_parsed(lines, str(file)), Check(head=noted))
    else:
        check = _verify_server(Client(settings.url), noted)
    reached = check.reached
    if settings.is_data:
        print_data(settings, {"ok": True, "count": check.count, "first": check.first, "head": str(reached or Mark())})
    elif check.count == 0 or reached is None:
        done("the audit trail is empty")
    else:
        done(f"the audit trail holds: {check.count} entries, {check.first} to {reached.position}")
        click.echo(f"  To prove later that nothing up to here was changed, keep this mark elsewhere:\n  {reached}")


def _verify_server(client: Client, noted: Mark | None) -> Check:
    """The server's recorded ends of the trail are checked too, and an earlier mark if given."""
    said = client.get("/api/v1/audit/verify")
    if not said["ok"]:
        raise _broken(str(said["fault"]))
    entries = _parsed(client.lines("/api/v1/audit/export"), "the export")
    return _walk(entries, Check(Mark.parse(said["base"]), Mark.parse(said["head"])), Check(head=noted))


def _walk(entries: Iterable[AuditEntry], *checks: Check) -> Check:
    for entry in entries:
        for check in checks:
            _refuse(check.follow(entry))
    for check in checks:
        _refuse(check.finish())
    return checks[0]


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise _broken(fault)


def _broken(fault: str) -> PermanentError:
    return PermanentError(
        f"The audit trail does not hold: {fault}.",
        hint="It was changed past Homeport, or the file is damaged. Keep it, and compare it with an older export.",
    )


def _parsed(lines: Iterable[bytes], source: str) -> Iterator[AuditEntry]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _entry(json.loads(line))
        except (RecursionError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"Line {number} of {source} is not an entry of an audit trail.",
                hint="Give a file that  homeport audit export  wrote.",
            ) from error


def _entry(line: Item) -> AuditEntry:
    texts = {name: str(line[name]) for name in ("actor", "role", "address", "action", "target")}
    at = datetime.fromisoformat(line["at"])
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    said = NewAudit(at=at, result=AuditResult(line["result"]), detail=dict(line["detail"]), **texts)
    return AuditEntry(int(line["position"]), said, str(line["previous"]), str(line["hash"]))


def _why(entry: Item) -> str:
    detail = entry["detail"]
    code, count = str(detail.get("code", "")), detail.get("count")
    return f"{code} x{count}".strip() if count else code
