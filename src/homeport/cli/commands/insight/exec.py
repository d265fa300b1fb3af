"""`homeport exec`: a command in a running container, wherever it is."""

import sys

import anyio
import click

from homeport.cli.api.client import Client
from homeport.cli.api.completers import complete_deployments
from homeport.cli.options import Settings, connected, pass_settings
from homeport.errors import InvalidInput


@click.command("exec")
@click.argument("deployment", shell_complete=complete_deployments)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass what you type, or a file, to the command.")
@click.option("-t", "--tty", "has_terminal", is_flag=True, help="Give the command a terminal.")
@click.option("-c", "--component", metavar="NAME", help="Which component, compose service or container [the first].")
@click.option("--node", metavar="NODE", help="On which node [the first that runs it].")
@connected
@pass_settings
def exec_(
    settings: Settings,
    /,
    *,
    deployment: str,
    command: tuple[str, ...],
    has_input: bool,
    has_terminal: bool,
    component: str | None,
    node: str | None,
) -> int:
    """Run a command in a container of a deployment.

    For example a shell:  homeport exec hello@home -it -- sh

    The exit code is the command's own. It needs the role operator, and the node must allow it (--allow exec); who ran
    what is in the audit trail.
    """
    if has_terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInput("This is not a terminal.", hint="Leave out -t where input or output is a file or a pipe.")
    name, slash, part = deployment.partition("/")
    if slash:
        raise InvalidInput(
            f'"{deployment}" is not a deployment.', hint=f"Name a component with -c:  {name} -c {part}"
        )
    from homeport.cli.terminal.remote_command import run_remotely  # noqa: PLC0415 - start-up time

    path = f"/api/v1/deployments/{deployment}/exec"
    return anyio.run(
        lambda: run_remotely(
            Client(settings.url),
            path,
            {"node": node, "component": component},
            command,
            has_input=has_input,
            has_terminal=has_terminal,
        )
    )
