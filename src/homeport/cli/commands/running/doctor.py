"""`homeport doctor`: checks this machine for problems that affect Homeport, and says what to do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from homeport.cli.exits import Exit
from homeport.cli.options import Settings, formatted, pass_settings
from homeport.cli.roles.addresses import ADDRESS, ListenAddress
from homeport.cli.roles.options import data_option, home, runtime_option
from homeport.cli.terminal.output import print_data

if TYPE_CHECKING:
    from homeport.cli.local.diagnosis import Finding

CHECK_WIDTH = 26
DEFAULT_PORTS = (ListenAddress("127.0.0.1", 8080), ListenAddress("127.0.0.1", 50051))


@click.command()
@data_option(home("up"))
@runtime_option
@click.option("--deployments", metavar="GIT_URL", help="Also try to reach this deployments repository.")
@click.option("--http", type=ADDRESS, default=DEFAULT_PORTS[0], help="The HTTP address to check [127.0.0.1:8080].")
@click.option("--grpc", type=ADDRESS, default=DEFAULT_PORTS[1], help="The gRPC address to check [127.0.0.1:50051].")
@formatted
@pass_settings
@click.pass_context
def doctor(
    ctx: click.Context,
    settings: Settings,
    /,
    *,
    data: Path,
    runtime: str,
    deployments: str | None,
    http: ListenAddress,
    grpc: ListenAddress,
) -> None:
    """Find what would keep Homeport from working here.

    Exit code 0 when there are none, 1 otherwise. Nothing is changed.
    """
    from homeport.cli.local.diagnosis import diagnose  # noqa: PLC0415 - start-up time

    findings = diagnose(data=data, runtime=runtime, deployments=deployments, addresses=(http, grpc))
    problems = [finding for finding in findings if finding.level == "problem"]
    notes = [finding for finding in findings if finding.level == "note"]
    if settings.is_data:
        print_data(settings, {"healthy": not problems, "findings": [finding.as_data() for finding in findings]})
        ctx.exit(Exit.FAILED if problems else Exit.DONE)
    for line in render(findings, get_terminal_size().columns):
        click.echo(line)
    click.echo(_summary(len(problems), len(notes)))
    ctx.exit(Exit.FAILED if problems else Exit.DONE)


def render(findings: "Sequence[Finding]", width: int) -> Iterator[str]:
    """Passed checks share lines, as many as fit; each problem gets a line of its own, with what to do."""
    good = [finding.message for finding in findings if finding.level == "ok"]
    for row in next(rows for in_line in (3, 2, 1) if (rows := _rows(good, in_line, width)) or in_line == 1):
        yield "   ".join(f"{click.style('✓', fg='green')} {message:<{CHECK_WIDTH}}" for message in row).rstrip()
    for finding in findings:
        if finding.level == "ok":
            continue
        sign, color = ("!", "yellow") if finding.level == "note" else ("✗", "red")
        yield f"{click.style(sign, fg=color)} {finding.message}"
        if finding.hint:
            yield f"    {finding.hint}"


def _rows(messages: Sequence[str], in_line: int, width: int) -> list[Sequence[str]]:
    """So many in a line; none where a line would be too long."""
    rows = [messages[start : start + in_line] for start in range(0, len(messages), in_line)]
    lengths = [sum(max(len(each), CHECK_WIDTH) + 5 for each in row[:-1]) + len(row[-1]) + 2 for row in rows]
    return rows if in_line == 1 or all(length <= width for length in lengths) else []


def _summary(problems: int, notes: int) -> str:
    if not problems and not notes:
        return "Everything is fine."
    counted = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in _words(problems, notes) if number]
    return f"{', '.join(counted)}."


def _words(problems: int, notes: int) -> tuple[tuple[int, str], ...]:
    return (problems, "problem"), (notes, "note")
