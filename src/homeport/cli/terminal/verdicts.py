"""The outcome of a wait, in one line each, and the resulting exit code."""

import re
from collections.abc import Collection, Sequence
from typing import Final

import click

from homeport.cli.api.client import Json
from homeport.cli.exits import Exit
from homeport.cli.terminal.ages import took
from homeport.cli.terminal.output import done
from homeport.cli.terminal.waiting import Ended, WaitVerdict
from homeport.core.model.instance import failure_text
from homeport.vocabulary import Code

_EXITS: Final = {
    WaitVerdict.INSTALLED: Exit.DONE,
    WaitVerdict.DELETED: Exit.DONE,
    WaitVerdict.ROLLED_BACK: Exit.ROLLED_BACK,
    WaitVerdict.FAILED: Exit.FAILED,
    WaitVerdict.TIMED_OUT: Exit.TIMED_OUT,
}
_PORT_IN_USE: Final = re.compile(r"port (\d+) is already in use")
_WORST_FIRST: Final = (Exit.FAILED, Exit.ROLLED_BACK, Exit.TIMED_OUT, Exit.DONE)


def exit_of(ends: Sequence[Ended], *, wanted: WaitVerdict) -> Exit:
    """The worst of them. A good end other than the wanted one (deleted while it was being deployed) is a failure."""
    codes = {
        Exit.FAILED if _EXITS[end.verdict] is Exit.DONE and end.verdict is not wanted else _EXITS[end.verdict]
        for end in ends
    }
    return next(code for code in _WORST_FIRST if code in codes)


def print_verdicts(ends: Sequence[Ended], *, unchanged: Collection[str] = ()) -> None:
    """`unchanged` are the ids of deployments that already matched the request."""
    for end in ends:
        title = f"{_title(end.deployment)}: " if len(ends) > 1 else ""
        if end.verdict is WaitVerdict.INSTALLED and end.deployment["id"] in unchanged:
            done(f"{title}unchanged: {end.deployment['app_name']} {end.deployment['app_version']} is INSTALLED")
        elif _EXITS[end.verdict] is Exit.DONE:
            done(f"{title}{end.verdict} in {took(end.seconds)}")
        else:
            click.echo(f"{click.style('✗', fg='red')} {title}{_sentence(end)}", err=True)
            click.echo(f"  {_next_step(end)}", err=True)


def _sentence(end: Ended) -> str:
    deployment = end.deployment
    if end.verdict is WaitVerdict.TIMED_OUT:
        waits = deployment["note"] or f"it is {deployment['state']}"
        return f"Not done after {took(end.seconds)}: {waits}"
    why = _failure(deployment) or deployment["note"] or "no reason was given"
    if end.verdict is WaitVerdict.ROLLED_BACK:
        return f"ROLLED BACK{_to_version(deployment)} in {took(end.seconds)}: {why}"
    return f"{end.verdict} after {took(end.seconds)}: {why}"


def _to_version(deployment: Json) -> str:
    """The one release that runs again; nodes may have gone back to different ones."""
    running = {instance.get("running_version") for instance in deployment["instances"]}
    return f" to {running.pop()}" if len(running) == 1 and None not in running else ""


def _failure(deployment: Json) -> str:
    for instance in deployment["instances"]:
        failure = instance["failure"]
        if failure is not None:
            return failure_text(failure["message"], failure["code"], failure["source"])
    return ""


def _next_step(end: Ended) -> str:
    name = f"{end.deployment['name']}@{end.deployment['site']}"
    if end.verdict is WaitVerdict.TIMED_OUT:
        return f"The deployment continues in the background. Follow it:  homeport deployments watch {name}"
    if end.verdict is WaitVerdict.ROLLED_BACK:
        revision = str(end.deployment["revision"]).removeprefix("sha256:")[:8]
        return (
            f"Revision {revision} is not tried again by itself. Try it again:  homeport deployments retry {name}   "
            f"See:  homeport why {name}"
        )
    return f"{_remedy(end.deployment, name)}   See:  homeport why {name}   homeport logs {name}"


def _remedy(deployment: Json, name: str) -> str:
    """What helps against this failure, where that is known; else another attempt."""
    text = _failure(deployment)
    if Code.NO_ELIGIBLE_NODE in text:
        return "It continues when a node can take it. To change its settings, deploy it again."
    taken = _PORT_IN_USE.search(text)
    if taken is None:
        return f"Try again:  homeport deployments retry {name}"
    settings = [key for key, value in deployment["parameters"].items() if str(value) == taken[1]]
    if not settings:
        return f"Free the port, then try again:  homeport deployments retry {name}   Or deploy it with another port."
    app, site = f"{deployment['app_name']}@{deployment['app_version']}", deployment["site"]
    named = "" if deployment["name"] == deployment["app_name"] else f" --name {deployment['name']}"
    return f"Choose another port:  homeport deploy {app} --site {site}{named} --set {settings[0]}=NUMBER"


def _title(deployment: Json) -> str:
    return f"{deployment['name']} {deployment['app_version']} at {deployment['site']}"
