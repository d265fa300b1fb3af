"""The `homeport` command: its commands by section, and the place that prints every failure.

Nothing heavy is imported here. A command's module is imported when that command is called.
"""

import gc
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
from homeport.cli.terminal.safe_text import protect_terminal
from homeport.cli.wording import plain_words
from homeport.errors import HomeportError, InvalidInput, StorageFull

COLLECT_AFTER: Final = (1_000_000, 20, 50)
"""Importing creates many objects and hardly any garbage: with Python's default of 700, garbage collection takes a
tenth of a role's start, and with 50,000 still a twentieth. A role that is up has thresholds of its own."""

SECTIONS: Final = MappingProxyType(
    {
        "Run Homeport": {
            "up": ("homeport.cli.commands.running.up:up", "Run central, one site and one node in this process."),
            "central": ("homeport.cli.commands.running.central:central", "Run central: API, catalog, desired state."),
            "site": ("homeport.cli.commands.running.site:site", "Run a site: follows Git and orders its nodes."),
            "node": ("homeport.cli.commands.running.node:node", "Run a node: starts containers and reports."),
            "service": (
                "homeport.cli.commands.running.service:service",
                "Start Homeport with the machine: install, check and remove a systemd service.",
            ),
            "doctor": (
                "homeport.cli.commands.running.doctor:doctor",
                "Find what would keep Homeport from working here.",
            ),
        },
        "Apps": {
            "apps": ("homeport.cli.commands.apps.apps:apps", "Add, list, check and publish apps."),
            "deploy": ("homeport.cli.commands.apps.deploy:deploy", "Deploy an app to sites, or plan it."),
            "deployments": (
                "homeport.cli.commands.apps.deployments:deployments",
                "List, follow, compare, roll back and delete deployments.",
            ),
            "rollouts": (
                "homeport.cli.commands.apps.rollouts:rollouts",
                "List, follow and steer rollouts over many sites.",
            ),
            "secrets": ("homeport.cli.commands.apps.secrets:secrets", "Set, list and remove the secrets of sites."),
        },
        "Machines": {
            "status": (
                "homeport.cli.commands.machines.status:status",
                "Show how the fleet is: sites, nodes, deployments, and what needs attention.",
            ),
            "dashboard": (
                "homeport.cli.commands.machines.dashboard:dashboard",
                "Open the dashboard in a browser, logged in.",
            ),
            "sites": ("homeport.cli.commands.machines.sites:sites", "List, show, label, join and hold sites."),
            "nodes": ("homeport.cli.commands.machines.nodes:nodes", "List, show, join, drain and remove nodes."),
            "top": ("homeport.cli.commands.machines.top:top", "Show what nodes and containers use, live."),
            "cache": ("homeport.cli.commands.machines.cache:cache", "Show the content cache of a site."),
            "identity": (
                "homeport.cli.commands.machines.identity:identity",
                "Decide who belongs to the fleet; rotate its authority.",
            ),
        },
        "Jobs": {
            "jobs": (
                "homeport.cli.commands.jobs.jobs:jobs",
                "Run commands on your machines: run, list, follow, cancel.",
            ),
            "pipelines": (
                "homeport.cli.commands.jobs.pipelines:pipelines",
                "Run pipelines of jobs, inference requests and HTTP calls.",
            ),
        },
        "AI models": {
            "models": (
                "homeport.cli.commands.models.models:models",
                "Add, list, verify, retire and remove models; serve one.",
            ),
            "engines": (
                "homeport.cli.commands.models.engines:engines",
                "Plan, provision, attach and list inference engines.",
            ),
            "pools": (
                "homeport.cli.commands.models.pools:pools",
                "List, show, drain and reload pools: engines that serve a model.",
            ),
            "tasks": ("homeport.cli.commands.models.tasks:tasks", "List, submit, follow and cancel inference tasks."),
            "chat": ("homeport.cli.commands.models.chat:chat", "Talk to a model in the terminal."),
            "usage": ("homeport.cli.commands.models.usage:usage", "Show tokens and requests by key, day and model."),
        },
        "Look closer": {
            "why": (
                "homeport.cli.commands.insight.why:why",
                "Explain the state of a deployment, a node, a job, a run or a task.",
            ),
            "logs": (
                "homeport.cli.commands.insight.logs:logs",
                "Print or follow what containers, jobs and roles write.",
            ),
            "events": (
                "homeport.cli.commands.insight.events:events",
                "Print what has happened, follow it, or export it.",
            ),
            "audit": (
                "homeport.cli.commands.insight.audit:audit",
                "Show who did what, export the audit trail and verify it.",
            ),
            "exec": ("homeport.cli.commands.insight.exec:exec_", "Run a command in a container of a deployment."),
            "port-forward": (
                "homeport.cli.commands.insight.port_forward:port_forward",
                "Reach a port of a deployment from this machine.",
            ),
        },
        "Access": {
            "login": (
                "homeport.cli.commands.access.login:login",
                "Log in to a server and make it the current context.",
            ),
            "contexts": (
                "homeport.cli.api.contexts:contexts",
                "List, choose and forget the places you have logged in to.",
            ),
            "tokens": ("homeport.cli.commands.access.tokens:tokens", "Create, list and revoke access tokens."),
            "token": (
                "homeport.cli.commands.access.token:token",
                "Print the access token that commands send to Homeport.",
            ),
            "setup-git": (
                "homeport.cli.commands.access.git:setup_git",
                "Let git clone from and push to this server: with your login, and trusting its certificate.",
            ),
        },
        "This command": {
            "version": ("homeport.cli.commands.version:version", "Print the version."),
            "completion": ("homeport.cli.commands.completion:completion", "Print a shell's completion script."),
        },
    }
)
"""Headings of `homeport --help`, and below each its commands: where they are, and their one line of help."""

UNLISTED: Final = MappingProxyType({"git-credential": "homeport.cli.commands.access.git:git_credential"})
"""Commands that other programs call."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    unlisted=UNLISTED,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Short forms: ps, show, watch, history, diff, rollback, retry, restart and delete are about deployments; "
    "ls, rm and describe work with every noun.",
)
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
    gc.set_threshold(*COLLECT_AFTER)
    protect_terminal()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; failures are printed."""
    settings = Settings()
    try:
        result = cli.main(list(arguments), prog_name="homeport", standalone_mode=False, obj=settings)
    except (click.Abort, KeyboardInterrupt) as interrupt:
        for note in getattr(interrupt.__cause__ or interrupt, "__notes__", ()):
            click.echo(note, err=True)
        return 130  # what shells expect after Ctrl-C
    except BrokenPipeError:
        # The reader (`head`, for example) has closed the pipe. Python would report it again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except Exception as error:
        if settings.debug and not isinstance(error, click.ClickException):
            raise
        return explain(error)
    return result if isinstance(result, int) else Exit.DONE


def explain(error: Exception) -> int:
    """Prints the error and returns its exit code."""
    if isinstance(error, HomeportError):
        if isinstance(error, StorageFull):
            error.hint = "Free some space, then run the command again."  # a role that runs retries, this one ends
        print_error(error)
        return exit_for(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return Exit.USAGE
    if isinstance(error, click.ClickException):
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        words = plain_words(error.format_message()) + _suggested_choice(error)
        _complain(words, f"See  {ctx.command_path} --help" if ctx else None)
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILED
    from homeport.adapters.files.disk import disk_problem  # noqa: PLC0415 - start-up time

    found = disk_problem(error, getattr(error, "filename", None) or "the data folder")
    if found is not None:
        return explain(found)
    if isinstance(error, OSError) and error.filename and error.strerror:
        _complain(f"{error.filename}: {error.strerror}.", "Check the path, and what you may do there.")
        return Exit.FAILED
    _complain(
        f"Homeport itself failed: {type(error).__name__}: {error}",
        "This is a fault in Homeport. Run it again with  homeport --debug …  and report what it prints.",
    )
    return Exit.FAILED


def _suggested_choice(error: click.ClickException) -> str:
    """For a mistyped one of a few words."""
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    typed = error.message.partition(" is not one of ")[0].strip("'")
    if not isinstance(kind, click.Choice):
        return ""
    import difflib  # noqa: PLC0415 - start-up time

    known = {str(each).lower(): str(each) for each in kind.choices}
    close = difflib.get_close_matches(typed.lower(), known, n=1)
    return f' Did you mean "{known[close[0]]}"?' if close else ""


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
    click.echo(count, err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)


def _complain(message: str, hint: str | None = None) -> None:
    click.echo(f"{click.style('✗', fg='red')} {message}", err=True)
    if hint:
        click.echo(f"  {hint}", err=True)
