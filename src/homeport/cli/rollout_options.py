"""The options that make a deployment a rollout, and following one until it has ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.feed import Feed
from homeport.cli.commands.insight.events import print_event
from homeport.cli.exits import Exit
from homeport.cli.options import Settings
from homeport.cli.terminal.output import done, print_data

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
TICK_SECONDS: Final = 2.0
ENDED: Final = frozenset({"done", "stopped", "aborted", "superseded"})


@dataclass(frozen=True, slots=True)
class Waves:
    selector: str | None
    sizes: tuple[str, ...]
    bake: str | None
    threshold: str | None

    @property
    def is_rollout(self) -> bool:
        return self.selector is not None or bool(self.sizes)

    @property
    def body(self) -> Json:
        values = {
            "selector": self.selector,
            "waves": list(self.sizes),
            "bake": self.bake,
            "threshold": self.threshold,
        }
        return {key: value for key, value in values.items() if value}


def waved(command: Decorated) -> Decorated:
    """Adds -l, --wave, --bake and --threshold; the command receives them as `waves`."""

    @click.option(
        "-l", "--selector", metavar="SELECTOR", help="Every site with these labels, also later: region=eu,tier!=test."
    )
    @click.option(
        "--wave",
        "sizes",
        multiple=True,
        metavar="SIZE",
        help="How many sites in all have it then: 1, 25%, 100%.",
    )
    @click.option("--bake", metavar="TIME", help="How long to watch a wave before the next begins, such as 5m.")
    @click.option("--threshold", metavar="SHARE", help="How many of a wave must be installed, such as 90% [100%].")
    @wraps(command)
    def with_waves(
        *args: Any,
        selector: str | None,
        sizes: tuple[str, ...],
        bake: str | None,
        threshold: str | None,
        **kwargs: Any,
    ) -> Any:
        return command(*args, waves=Waves(selector, sizes, bake, threshold), **kwargs)

    return with_waves  # type: ignore[return-value]


def follow(settings: Settings, client: Client, rollout_id: str, *, after: int | None, timeout_seconds: float) -> Exit:
    """Prints the events of a rollout until it has ended. Ctrl-C leaves it running."""
    deadline = time.monotonic() + timeout_seconds
    feed = Feed(client, "/api/v1/events", after=after, subject=f"rollout/{rollout_id}")
    shown = client.get(f"/api/v1/rollouts/{rollout_id}")
    while shown["state"] not in ENDED and time.monotonic() < deadline:
        event = feed.next(min(TICK_SECONDS, max(0.0, deadline - time.monotonic())))
        if event is not None and event["kind"] != "rollout.state":
            continue
        if event is not None and event["data"].get("rollout_id") == rollout_id and not settings.is_data:
            print_event(settings, event)
        shown = client.get(f"/api/v1/rollouts/{rollout_id}")
    if settings.is_data:
        print_data(settings, shown)
    return _verdict(settings, shown)


def _verdict(settings: Settings, shown: Json) -> Exit:
    if shown["state"] == "done":
        if not settings.is_data:
            done(f"DONE: {shown['note']}")
        return Exit.DONE
    ended = shown["state"] in ENDED
    if not settings.is_data:
        word = shown["state"].upper() if ended else "Not done yet"
        click.echo(f"{click.style('✗', fg='red')} {word}: {shown['note']}", err=True)
        click.echo(f"  See:  homeport rollouts show {shown['id'][:8]}", err=True)
    return Exit.FAILED if ended else Exit.TIMED_OUT
