"""The `homeport` command: its table of commands, and the place where every failure becomes one readable message.

Nothing heavy is imported here. A command's module is imported when that command is called.
"""

import os
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import click

from homeport import __version__
from homeport.cli.exits import Exit, exit_for
from homeport.cli.lazy import LazyGroup
from homeport.cli.options import Settings, connected, formatted
from homeport.errors import HomeportError, InvalidInput

COMMANDS: Final = MappingProxyType(
    {
        "up": ("homeport.cli.up:up", "Run central, one site and one node in this process."),
        "central": ("homeport.cli.central:central", "Run central: API, catalog, desired state."),
        "site": ("homeport.cli.site:site", "Run a site: follows Git and orders its nodes."),
        "node": ("homeport.cli.node:node", "Run a node: starts containers and reports."),
        "apps": ("homeport.cli.apps:apps", "Add, list, check and publish apps."),
        "deploy": ("homeport.cli.deploy:deploy", "Deploy an app to sites, or plan it."),
        "deployments": (
            "homeport.cli.deployments:deployments",
            "List, follow, compare, roll back and delete deployments.",
        ),
        "rollouts": ("homeport.cli.rollouts:rollouts", "List, follow and steer rollouts over many sites."),
        "sites": ("homeport.cli.sites:sites", "List, show, label, join and hold sites."),
        "nodes": ("homeport.cli.nodes:nodes", "List, show, join, drain and remove nodes."),
        "identity": ("homeport.cli.identity:identity", "Decide who belongs to the fleet; rotate its authority."),
        "status": ("homeport.cli.status:status", "Show how the fleet is: sites, nodes, deployments, and what fails."),
        "why": ("homeport.cli.why:why", "Say why a deployment or a node is as it is."),
        "secrets": ("homeport.cli.secrets:secrets", "Set, list and remove the secrets of sites."),
        "events": ("homeport.cli.events:events", "Print what has happened, follow it, or export it."),
        "audit": ("homeport.cli.audit:audit", "Show who did what, export it and prove that it is whole."),
        "login": ("homeport.cli.login:login", "Log in to a server and make it the current context."),
        "contexts": ("homeport.cli.contexts:contexts", "List, choose and forget the places you have logged in to."),
        "tokens": ("homeport.cli.tokens:tokens", "Create, list and revoke access tokens."),
        "doctor": ("homeport.cli.doctor:doctor", "Find what would keep Homeport from working here."),
        "version": ("homeport.cli.version:version", "Print the version."),
        "completion": ("homeport.cli.completion:completion", "Print a shell's completion script."),
    }
)


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@connected
@formatted
@click.version_option(__version__, message="homeport %(version)s", help="Print the version and exit.")
@click.option("--debug", is_flag=True, envvar="HOMEPORT_DEBUG", help="Show the stack trace of an unexpected error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Homeport deploys containerised apps on the machines you own, from Git."""
    settings = ctx.ensure_object(Settings)
    settings.debug = debug
    if os.environ.get("NO_COLOR"):
        settings.color = ctx.color = False


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal without ✓ in its encoding gets a question mark, never a crash.
            reconfigure(errors="replace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and answers its exit code; every failure has been printed by then."""
    settings = Settings()
    try:
        result = cli.main(list(arguments), prog_name="homeport", standalone_mode=False, obj=settings)
    except (click.Abort, KeyboardInterrupt):
        return 130  # what shells expect of Ctrl-C
    except BrokenPipeError:
        # The reader, `head` say, has seen enough. Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except Exception as error:
        if settings.debug and not isinstance(error, click.ClickException):
            raise
        return explain(error)
    return result if isinstance(result, int) else Exit.DONE


def explain(error: Exception) -> int:
    """Prints what went wrong and answers the exit code for it."""
    if isinstance(error, HomeportError):
        print_error(error)
        return exit_for(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return Exit.USAGE
    if isinstance(error, click.ClickException):
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        _complain(error.format_message(), f"See  {ctx.command_path} --help" if ctx else None)
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
    _complain(
        f"Homeport itself failed: {type(error).__name__}: {error}",
        "This is a fault in Homeport. Run it again with  homeport --debug …  and report what it prints.",
    )
    return Exit.FAILED


def print_error(error: HomeportError) -> None:
    """What is wrong, then what to do; each problem of an input with its file and line."""
    problems = error.problems if isinstance(error, InvalidInput) else ()
    if not problems:
        _complain(str(error), error.hint)
        return
    for problem in problems:
        place = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
        heading = "  ".join(part for part in (place, problem.field) if part)
        _complain(f"{heading}\n      {problem.message}" if heading else problem.message)
    count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}; nothing was changed."
    click.echo(f"{count}  {error.hint}" if error.hint else count, err=True)


def _complain(message: str, hint: str | None = None) -> None:
    click.echo(f"{click.style('✗', fg='red')} {message}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)
