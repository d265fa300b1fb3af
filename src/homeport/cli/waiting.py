"""Follows deployments until they have ended, one way or another, and shows every step on the way.

Events say "look now" and carry the progress; whether a deployment has ended is always read from its whole state, so a
lost event costs nothing but a second.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from homeport.cli.ages import took
from homeport.cli.client import Client, Json
from homeport.cli.feed import Feed
from homeport.cli.holding import hold_text
from homeport.cli.progress import Line, Lines

TICK_SECONDS: Final = 1.0
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
"""Words for instance states; INSTALLED is missing, for the node's own `healthy` says it."""


class Verdict(StrEnum):
    INSTALLED = "INSTALLED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED BACK"
    DELETED = "DELETED"
    TIMED_OUT = "TIMED OUT"


@dataclass(frozen=True, slots=True)
class Ended:
    verdict: Verdict
    deployment: Json
    seconds: float


@dataclass
class Wait:
    client: Client
    ids: Sequence[str]
    lines: Lines | None
    """None shows nothing on the way."""
    revision: str | None = None
    """What is waited for, where that is not what Git wants: a site may go back before Git hears of it."""
    began: float = field(default_factory=time.monotonic)
    _ended: dict[str, Ended] = field(default_factory=dict)
    _failed_since: dict[str, float] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)

    def run(self, *, after: int, timeout_seconds: float) -> list[Ended]:
        """How each of `ids` ended, in their order."""
        deadline = self.began + timeout_seconds
        feed = Feed(self.client, "/api/v1/events", after=after)
        look_at = set(self.ids)
        next_look = 0.0
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
                    if event["kind"] in {"deployment.state", "instance.state", "deployment.refused"}:
                        look_at.add(event["deployment_id"])
        finally:
            if self.lines is not None:
                self.lines.close()
        return [self._ended.get(each) or self._timed_out(each) for each in self.ids]

    def _look(self, ids: set[str]) -> None:
        for deployment_id in ids - self._ended.keys():
            deployment = self.client.get(f"/api/v1/deployments/{deployment_id}")
            found = verdict_of(deployment if self.revision is None else {**deployment, "revision": self.revision})
            if found is Verdict.FAILED:
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
        """Once: whoever waits for it should know for what."""
        if deployment["id"] not in self._held and self.lines is not None:
            self._held.add(deployment["id"])
            self.lines.show(
                Line(str(deployment["site"]), "held", hold_text(deployment["hold"]).removeprefix("held "))
            )

    def _timed_out(self, deployment_id: str) -> Ended:
        deployment = self.client.get(f"/api/v1/deployments/{deployment_id}")
        return Ended(Verdict.TIMED_OUT, deployment, time.monotonic() - self.began)

    def _show(self, event: Json) -> None:
        line = line_of(event)
        if line is None or self.lines is None:
            return
        started = self._started.setdefault(line.place, time.monotonic())
        if line.step == "starting":
            self._started[line.place] = time.monotonic()
        if line.step == "healthy" and not line.text:
            line = Line(line.place, line.step, f"after {took(time.monotonic() - started)}")
        self.lines.show(line)


def verdict_of(deployment: Mapping[str, Any]) -> Verdict | None:
    """How a deployment has ended; None while it has not. Judged by its newest revision, not by the one before."""
    state, revision = deployment["state"], deployment["revision"]
    instances = [instance for instance in deployment["instances"] if instance["state"] != "DELETED"]
    if state == "DELETED":
        return Verdict.DELETED
    if state == "FAILED":
        return _failed(deployment, instances)
    if state != "INSTALLED" or not deployment["wanted"] or not instances:
        return None
    if all(instance["running_revision"] == revision for instance in instances):
        return Verdict.INSTALLED
    ended = all(revision in {each["running_revision"], each["rejected_revision"]} for each in instances)
    return Verdict.ROLLED_BACK if ended else None


def _failed(deployment: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]) -> Verdict | None:
    """What failed for the revision before says nothing about this one, unless it is the removal that failed; and
    where the site tries again or goes back by itself nothing has ended."""
    revision = deployment["revision"]
    failed = [instance for instance in instances if instance["state"] == "FAILED"]
    if any(instance["next_at"] is not None for instance in failed):
        return None
    current = not deployment["wanted"] or any(
        instance["revision"] in {None, revision} or instance["rejected_revision"] == revision for instance in failed
    )
    return Verdict.FAILED if current else None


def line_of(event: Mapping[str, Any]) -> Line | None:
    """What an event has to say on the way; None for one that adds nothing."""
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
            text.removeprefix(step).strip(" :"),
            int(data.get("bytes_done") or 0),
            int(data.get("bytes_total") or 0),
        )
    if event["kind"] == "instance.state" and data.get("after") in STEP_OF_STATE:
        failure = data.get("failure")
        reason = f"{failure['message']} ({failure['code']})" if failure else data.get("reason", "")
        return Line(place, STEP_OF_STATE[data["after"]], reason)
    return None
