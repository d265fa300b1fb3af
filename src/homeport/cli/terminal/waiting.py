"""Follows deployments until they have settled, and shows every step.

Events trigger a refresh and carry the progress; whether a deployment has settled is always read from its whole state,
so a lost event only costs a second.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Final

import click

from homeport.cli.api.client import Client, Json
from homeport.cli.api.feed import Feed
from homeport.cli.terminal.ages import took
from homeport.cli.terminal.holds import hold_text
from homeport.cli.terminal.progress import Line, Lines
from homeport.core.model.instance import failure_text
from homeport.lazy_dataclass import dataclass

TICK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 0.3
"""When nothing has happened by then, it may wait for something, such as the end of a hold."""
SUBJECTS_MAX: Final = 100
FAILED_GRACE_SECONDS: Final = 2.0
"""A failure is final only when nothing follows it: a retry or a rollback begins at once."""

STEP_OF_STATE: Final[Mapping[str, str]] = {
    "INSTALLING": "installing",
    "UPDATING": "updating",
    "FAILED": "failed",
    "ROLLINGBACK": "rolling back",
    "DELETING": "removing",
    "DELETED": "removed",
}
"""Texts for instance states; INSTALLED is missing, because the node's own `healthy` says it."""


UNDER_WAY: Final = frozenset({"INSTALLING", "UPDATING", "ROLLINGBACK", "DELETING"})


class WaitVerdict(StrEnum):
    INSTALLED = "INSTALLED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED BACK"
    DELETED = "DELETED"
    TIMED_OUT = "TIMED OUT"


@dataclass(frozen=True, slots=True)
class Ended:
    verdict: WaitVerdict
    deployment: Json
    seconds: float


@dataclass
class Steps:
    """The events of deployments as progress lines: what each node does, and how long it took until it was healthy."""

    _started: dict[str, float] = field(default_factory=dict)

    def show(self, event: Json, lines: Lines) -> None:
        line = line_of(event)
        if line is None:
            return
        started = self._started.setdefault(line.place, time.monotonic())
        if line.step == "starting":
            self._started[line.place] = time.monotonic()
        if line.step == "healthy" and not line.text:
            line = Line(line.place, line.step, f"after {took(time.monotonic() - started)}")
        lines.show(line)


@dataclass
class Wait:
    client: Client
    ids: Sequence[str]
    lines: Lines | None
    """None shows no progress."""
    revision: str | None = None
    """The revision to wait for, where it is not Git's: a site may roll back before Git is updated."""
    began: float = field(default_factory=time.monotonic)
    _ended: dict[str, Ended] = field(default_factory=dict)
    _failed_since: dict[str, float] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)
    _steps: Steps = field(default_factory=Steps)

    def run(
        self, *, after: int | None, timeout_seconds: float, settled: Collection[str] | None = None
    ) -> list[Ended]:
        """The outcome of each of `ids`, in their order. Without `after`, from now on. `settled` are those that may
        have no event to come, where that is known: others are not looked at before one."""
        deadline = self.began + timeout_seconds
        # Events of many deployments are most of all events, and their ids would not fit into a URL.
        subjects = [f"deployment/{each}" for each in self.ids] if len(self.ids) <= SUBJECTS_MAX else None
        feed = Feed(self.client, "/api/v1/events", after=after, subject=subjects)
        look_at = set(self.ids if settled is None or after is None else settled)
        next_look = time.monotonic() + FIRST_LOOK_SECONDS
        try:
            while True:
                if look_at or time.monotonic() >= next_look:
                    self._look(look_at or set(self.ids))
                    look_at, next_look = set(), time.monotonic() + TICK_SECONDS
                if len(self._ended) == len(set(self.ids)) or time.monotonic() >= deadline:
                    break
                event = feed.next(min(next_look, deadline) - time.monotonic())
                if event is not None and event["deployment_id"] in self.ids:
                    self._show(event)
                    if may_settle(event):
                        look_at.add(event["deployment_id"])
        except KeyboardInterrupt:
            follow = f"Follow it:  homeport deployments watch {self.ids[0][:8]}"
            click.echo(f"\nThe deployment continues in the background. {follow}", err=True)
            raise
        finally:
            if self.lines is not None:
                self.lines.close()
        return [self._ended.get(each) or self._timed_out(each) for each in self.ids]

    def _look(self, ids: set[str]) -> None:
        for deployment_id in ids - self._ended.keys():
            deployment = self.client.get(f"/api/v1/deployments/{deployment_id}")
            found = verdict_of(deployment if self.revision is None else {**deployment, "revision": self.revision})
            if found is WaitVerdict.FAILED:
                since = self._failed_since.setdefault(deployment_id, time.monotonic())
                if time.monotonic() - since < FAILED_GRACE_SECONDS:
                    continue
            else:
                self._failed_since.pop(deployment_id, None)
            if found is not None:
                self._ended[deployment_id] = Ended(found, deployment, time.monotonic() - self.began)
            elif deployment.get("hold"):
                self._tell_hold(deployment)

    def _tell_hold(self, deployment: Json) -> None:
        """Once: the user should know what the deployment waits for."""
        if deployment["id"] not in self._held and self.lines is not None:
            self._held.add(deployment["id"])
            self.lines.show(
                Line(str(deployment["site"]), "held", hold_text(deployment["hold"]).removeprefix("held "))
            )

    def _timed_out(self, deployment_id: str) -> Ended:
        deployment = self.client.get(f"/api/v1/deployments/{deployment_id}")
        return Ended(WaitVerdict.TIMED_OUT, deployment, time.monotonic() - self.began)

    def _show(self, event: Json) -> None:
        if self.lines is not None:
            self._steps.show(event, self.lines)


def may_settle(event: Mapping[str, Any]) -> bool:
    """Whether the deployment is worth a look: it is not when something has only begun."""
    kind = event["kind"]
    if kind in {"deployment.state", "instance.state"}:
        return event["data"].get("after", event["data"].get("state")) not in UNDER_WAY
    return bool(kind == "deployment.refused")


def verdict_of(deployment: Mapping[str, Any]) -> WaitVerdict | None:
    """The outcome of a deployment; None while it has not settled. Judged by its newest revision."""
    state, revision = deployment["state"], deployment["revision"]
    instances = [instance for instance in deployment["instances"] if instance["state"] != "DELETED"]
    if state == "DELETED":
        return WaitVerdict.DELETED
    if state == "FAILED":
        return _failed(deployment, instances)
    if state != "INSTALLED" or not deployment["wanted"] or not instances:
        return None
    if all(instance["running_revision"] == revision for instance in instances):
        return WaitVerdict.INSTALLED
    ended = all(revision in {each["running_revision"], each["rejected_revision"]} for each in instances)
    return WaitVerdict.ROLLED_BACK if ended else None


def _failed(deployment: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> WaitVerdict | None:
    """A failure of the previous revision says nothing about this one, unless it is a failed removal; and while the
    site retries or rolls back by itself the deployment has not settled."""
    revision = deployment["revision"]
    failed = [instance for instance in instances if instance["state"] == "FAILED"]
    if any(instance["next_at"] is not None for instance in failed):
        return None
    current = not deployment["wanted"] or any(
        instance["revision"] in {None, revision} or instance["rejected_revision"] == revision for instance in failed
    )
    return WaitVerdict.FAILED if current else None


def line_of(event: Mapping[str, Any]) -> Line | None:
    """The progress line of an event; None for one that adds nothing."""
    place = f"{event['site']} / {event['node_id']}" if event["node_id"] else str(event["site"])
    data = event["data"]
    if event["kind"] in {"deployment.progress", "drift.found", "drift.repaired"}:
        step = str(data.get("step", ""))
        if step in {"", "accepted"}:
            return None
        text = str(data.get("message") or event["message"])
        return Line(
            place,
            step,
            _unrepeated(step, text),
            int(data.get("bytes_done") or 0),
            int(data.get("bytes_total") or 0),
        )
    if event["kind"] == "instance.state" and data.get("after") in STEP_OF_STATE:
        failure = data.get("failure")
        text = failure_text(failure["message"], failure["code"]) if failure else str(data.get("reason", ""))
        step = STEP_OF_STATE[data["after"]]
        return Line(place, step, _unrepeated(step, text))
    return None


def _unrepeated(step: str, text: str) -> str:
    """The text without the step, which precedes it already."""
    return text.removeprefix(step).strip(" :")
