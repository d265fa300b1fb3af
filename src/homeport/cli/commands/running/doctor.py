"""`homeport doctor`: checks this machine for problems that affect Homeport, and says what to do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from homeport.cli.exits import Exit
from homeport.cli.options import Settings, formatted, pass_settings
from homeport.cli.roles.addresses import ADDRESS, Address
from homeport.cli.roles.options import data_option, home, runtime_option
from homeport.cli.terminal.output import print_data

if TYPE_CHECKING:
    from homeport.cli.local.diagnosis import Finding

DEFAULT_PORTS = (Address("127.0.0.1", 8080), Address("127.0.0.1", 50051))


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
    http: Address,
    grpc: Address,
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
    for line in render(findings):
        click.echo(line)
    click.echo(_summary(len(problems), len(notes)))
    ctx.exit(Exit.FAILED if problems else Exit.DONE)


def render(findings: "Sequence[Finding]") -> Iterator[str]:
    """Passed checks share lines; each problem gets a line of its own, with what to do."""
    good = [finding.message for finding in findings if finding.level == "ok"]
    for start in range(0, len(good), 3):
        row = good[start : start + 3]
        yield "   ".join(f"{click.style('✓', fg='green')} {message:<26}" for message in row).rstrip()
    for finding in findings:
        if finding.level == "ok":
            continue
        sign, color = ("!", "yellow") if finding.level == "note" else ("✗", "red")
        yield f"{click.style(sign, fg=color)} {finding.message}"
        if finding.hint:
            yield f"    {finding.hint}"


def _summary(problems: int, notes: int) -> str:
    if not problems and not notes:
        return "Everything is fine."
    counted = [f"{number} {word}{'' if number == 1 else 's'}" for number, word in _words(problems, notes) if number]
    return f"{', '.join(counted)}."


def _words(problems: int, notes: int) -> tuple[tuple[int, str], ...]:
    return (problems, "problem"), (notes, "note")
