"""How a wait ended, in one line each, and the exit code it adds up to."""

from collections.abc import Sequence
from typing import Final

import click

from homeport.cli.ages import took
from homeport.cli.client import Json
from homeport.cli.exits import Exit
from homeport.cli.output import done
from homeport.cli.waiting import Ended, Verdict

_EXITS: Final = {
    Verdict.INSTALLED: Exit.DONE,
    Verdict.DELETED: Exit.DONE,
    Verdict.ROLLED_BACK: Exit.ROLLED_BACK,
    Verdict.FAILED: Exit.FAILED,
    Verdict.TIMED_OUT: Exit.TIMED_OUT,
}
_WORST_FIRST: Final = (Exit.FAILED, Exit.ROLLED_BACK, Exit.TIMED_OUT, Exit.DONE)


def exit_of(ends: Sequence[Ended], *, wanted: Verdict) -> Exit:
    """The worst of them. What ended well, but not as wanted (deleted while it was being deployed), failed."""
    codes = {
        Exit.FAILED if _EXITS[end.verdict] is Exit.DONE and end.verdict is not wanted else _EXITS[end.verdict]
        for end in ends
    }
    return next(code for code in _WORST_FIRST if code in codes)


def print_verdicts(ends: Sequence[Ended]) -> None:
    for end in ends:
        title = f"{_title(end.deployment)}: " if len(ends) > 1 else ""
        if _EXITS[end.verdict] is Exit.DONE:
            done(f"{title}{end.verdict} in {took(end.seconds)}")
        else:
            click.echo(f"{click.style('✗', fg='red')} {title}{_sentence(end)}", err=True)
            click.echo(f"  {_next_step(end)}", err=True)


def _sentence(end: Ended) -> str:
    deployment = end.deployment
    if end.verdict is Verdict.TIMED_OUT:
        waits = deployment["note"] or f"it is {deployment['state']}"
        return f"Not done after {took(end.seconds)}: {waits}"
    why = _failure(deployment) or deployment["note"] or "no reason was given"
    if end.verdict is Verdict.ROLLED_BACK:
        return f"ROLLED BACK in {took(end.seconds)}: {why}"
    return f"{end.verdict} after {took(end.seconds)}: {why}"


def _failure(deployment: Json) -> str:
    for instance in deployment["instances"]:
        failure = instance["failure"]
        if failure is not None:
            where = f" for component {failure['source']}" if failure["source"] else ""
            return f"{failure['message']}{where} ({failure['code']})"
    return ""


def _next_step(end: Ended) -> str:
    name = f"{end.deployment['name']}@{end.deployment['site']}"
    if end.verdict is Verdict.TIMED_OUT:
        return f"It goes on without me. Follow it:  homeport deployments watch {name}"
    if end.verdict is Verdict.ROLLED_BACK:
        revision = str(end.deployment["revision"]).removeprefix("sha256:")[:8]
        return (
            f"Revision {revision} will not be tried again until the deployment changes. "
            f"See:  homeport deployments history {name}"
        )
    return f"See:  homeport deployments history {name}"


def _title(deployment: Json) -> str:
    return f"{deployment['name']} {deployment['app_version']} at {deployment['site']}"
