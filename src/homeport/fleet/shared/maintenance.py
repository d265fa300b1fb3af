"""Validation of requests about nodes and holds, the same at central and at the site, and the event of a hold."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from homeport.core.model.deployment import Hold
from homeport.core.model.event import NewEvent
from homeport.core.model.node import Node
from homeport.core.reconcile.holds import active, hold_text
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.vocabulary import DeploymentId, EventKind, SiteName

HOLD_DAYS_MAX: Final = 90
"""A forgotten hold would keep a site from its updates permanently."""


def check_drainable(node: Node) -> None:
    if node.drain is not None:
        raise Conflict(
            f"Node {node.id} is drained already: {node.drain}.",
            hint=f"Take it back:  homeport nodes undrain {node.id}",
        )


def check_drained(node: Node) -> None:
    if node.drain is None:
        raise Conflict(f"Node {node.id} is not drained.", hint="See  homeport nodes list")


def check_hold(hold: Hold, now: datetime) -> None:
    """Raises InvalidInput with the invalid field."""
    problems = []
    if not hold.reason.strip():
        problems.append(Problem("reason", "is required, so that others can see why the update waits."))
    if hold.expires_at <= now:
        problems.append(Problem("expires_at", f"has passed: it is {now:%Y-%m-%d %H:%M} UTC already."))
    elif hold.expires_at > now + timedelta(days=HOLD_DAYS_MAX):
        problems.append(Problem("expires_at", f"is too far away: a hold lasts at most {HOLD_DAYS_MAX} days."))
    if problems:
        raise InvalidInput(problems=problems)


def find_hold(holds: Sequence[Hold], site: SiteName, deployment_id: DeploymentId | None, now: datetime) -> Hold:
    found = next((hold for hold in active(holds, now) if hold.deployment_id == deployment_id), None)
    if found is None:
        what = f"Site {site}" if deployment_id is None else f"Deployment {deployment_id}"
        raise NotFound(f"{what} is not held.", hint=f"See what is:  homeport sites show {site}")
    return found


def hold_event(kind: EventKind, hold: Hold, now: datetime, *, by: str = "") -> NewEvent:
    what = f"site {hold.site}" if hold.deployment_id is None else f"deployment {hold.deployment_id} at {hold.site}"
    ended = f"{what} is free again" + (f", released by {by}" if by else "")
    message = f"{what} is {hold_text(hold)}" if kind is EventKind.HOLD_SET else ended
    data = {"reason": hold.reason, "author": hold.author, "expires_at": hold.expires_at.isoformat()}
    return NewEvent(kind, now, message, site=hold.site, deployment_id=hold.deployment_id, data=data)
