"""The options that make a deployment a rollout, and following one until it has ended."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.feed import Feed
from homeport.cli.exits import Exit
from homeport.cli.options import Settings
from homeport.cli.terminal.output import done, print_data
from homeport.cli.terminal.progress import Line, Lines, lines_for
from homeport.cli.terminal.waiting import Steps
from homeport.errors import NotFound
from homeport.lazy_dataclass import dataclass

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
TICK_SECONDS: Final = 2.0
MISSED_EVENT_SECONDS: Final = 1.0
SITES_SHOWN_MAX: Final = 20
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
    """Shows the waves of a rollout, and what its nodes do, until it has ended. Ctrl-C leaves it running."""
    deadline = time.monotonic() + timeout_seconds
    shown = client.get(f"/api/v1/rollouts/{rollout_id}")
    following = _Following(client, shown, after, None if settings.is_data else lines_for(settings))
    try:
        while shown["state"] not in ENDED and time.monotonic() < deadline:
            if following.has_changed(min(TICK_SECONDS, max(0.0, deadline - time.monotonic()))):
                shown = client.get(f"/api/v1/rollouts/{rollout_id}")
        if shown["state"] in ENDED and after is not None:
            following.show_missed_events()
    except KeyboardInterrupt:
        click.echo(
            f"\nThe rollout continues in the background. Follow it:  homeport rollouts watch {rollout_id[:8]}",
            err=True,
        )
        raise
    finally:
        following.close()
    if settings.is_data:
        print_data(settings, shown)
    return _verdict(settings, shown)


class _Following:
    """The events of a rollout. With few sites also those of its deployments, node by node; with many these would hide
    how the waves go, and no screen could show them."""

    def __init__(self, client: Client, rollout: Json, after: int | None, lines: Lines | None) -> None:
        self._client = client
        self._rollout = rollout
        self._sites = {member["site"] for member in rollout["members"]}
        self._lines = lines
        self._steps = Steps()
        self._is_ours: dict[str, bool] = {}
        self._end_shown = False
        subject = None if lines is not None and len(self._sites) <= SITES_SHOWN_MAX else f"rollout/{rollout['id']}"
        self._feed = Feed(client, "/api/v1/events", after=after, subject=subject)

    def has_changed(self, seconds: float) -> bool:
        """Whether the rollout may have another state now: it said so, or nothing was heard for so long."""
        event = self._feed.next(seconds)
        if event is None:
            return True
        return self._show(event)

    def show_missed_events(self) -> None:
        """Shows the remaining events of a rollout that ended before the event stream was read."""
        while not self._end_shown and (event := self._feed.next(MISSED_EVENT_SECONDS)) is not None:
            self._show(event)

    def _show(self, event: Json) -> bool:
        """Whether it was a new state of the rollout."""
        if event["kind"] == "rollout.state" and event["data"].get("rollout_id") == self._rollout["id"]:
            self._end_shown = event["data"]["state"] in ENDED
            if self._lines is not None:
                self._lines.show(_line_of_rollout(event))
            return True
        if self._lines is not None and event["deployment_id"] and self._belongs(event):
            self._steps.show(event, self._lines)
        return False

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()

    def _belongs(self, event: Json) -> bool:
        """Whether it is about a deployment of the rollout: one of its name, at one of its sites."""
        deployment_id = str(event["deployment_id"])
        if event["site"] not in self._sites:
            return False
        if deployment_id not in self._is_ours:
            try:
                found = self._client.get(f"/api/v1/deployments/{deployment_id}")
            except NotFound:
                found = {"name": None}
            self._is_ours[deployment_id] = found["name"] == self._rollout["name"]
        return self._is_ours[deployment_id]


def _line_of_rollout(event: Json) -> Line:
    data = event["data"]
    return Line(f"{data['app_name']} {data['app_version']}", data["state"], event["message"].partition(": ")[2])


def _verdict(settings: Settings, shown: Json) -> Exit:
    if shown["state"] == "done":
        if not settings.is_data:
            done(f"DONE: {shown['note']}")
        return Exit.DONE
    ended = shown["state"] in ENDED
    if not settings.is_data:
        word = shown["state"].upper() if ended else "Not finished yet"
        click.echo(f"{click.style('✗', fg='red')} {word}: {shown['note']}", err=True)
        click.echo(f"  See:  homeport rollouts show {shown['id'][:8]}", err=True)
    return Exit.FAILED if ended else Exit.TIMED_OUT
