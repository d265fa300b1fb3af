"""Events that central and a site both build: one function each, so that both use the same texts and keys."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from homeport.core.model.deployment import Pin
from homeport.core.model.event import Deployment, NewEvent
from homeport.core.model.node import Node
from homeport.vocabulary import Commit, DeploymentId, EventKind, NodeId, SiteName, State


def deployment_event(
    kind: EventKind, row: Deployment, message: str, *, commit: Commit, now: datetime, author: str | None, **data: Any
) -> NewEvent:
    """`author` is the author of the commit, where known."""
    about: Mapping[str, Any] = {
        "name": row.name,
        "state": row.state.value,
        "app_name": row.app_name,
        "app_version": row.app_version,
        "revision": row.revision,
        "commit": commit,
        "author": author,
        **data,
    }
    return NewEvent(kind, now, message, site=row.site, deployment_id=row.id, data=about)


def wanted_event(row: Deployment, *, is_new: bool, commit: Commit, now: datetime, author: str | None) -> NewEvent:
    kind = EventKind.DEPLOYMENT_CREATED if is_new else EventKind.DEPLOYMENT_CHANGED
    verb = "is wanted" if is_new else "changes"
    message = f"{row.name} {row.app_version} {verb} at {row.site}, {_source(commit, author)}"
    return deployment_event(kind, row, message, commit=commit, now=now, author=author)


def unwanted_event(row: Deployment, *, commit: Commit, now: datetime, author: str | None) -> NewEvent:
    message = f"{row.name} is no longer wanted at {row.site}, {_source(commit, author)}"
    return deployment_event(EventKind.DEPLOYMENT_UNWANTED, row, message, commit=commit, now=now, author=author)


def deleted_event(row: Deployment, before: State, *, now: datetime) -> NewEvent:
    """The last event of a deployment that was never placed, or of which nothing is left."""
    message = f"{row.name} at {row.site} is {State.DELETED}"
    data = {"before": before.value, "failure": None}
    return deployment_event(EventKind.DEPLOYMENT_STATE, row, message, commit=row.commit, now=now, author=None, **data)


def row_left_out_event(table: str, key: Sequence[str], why: str, now: datetime) -> NewEvent:
    """Something wrote to the database that is not ours, or its disk is failing."""
    message = (
        f"row {'/'.join(key)} of the table {table} cannot be read and is left out: {why}. Correct or delete it in the"
        " database, or restore a backup."
    )
    return NewEvent(EventKind.ROW_LEFT_OUT, now, message, data={"table": table, "key": list(key), "why": why})


def set_aside_event(site: SiteName, key: DeploymentId, name: str, why: str, now: datetime) -> NewEvent:
    """A deployment that its site cannot plan stays unchanged."""
    message = f"{name} is left as it is: {why}"
    return NewEvent(EventKind.DEPLOYMENT_REFUSED, now, message, site=site, deployment_id=key, data={"why": why})


def pinned_event(site: SiteName, name: str, pin: Pin, what: str) -> NewEvent:
    """`what` is the text after the name: which version, and what else a reader should know."""
    data = {"revision": pin.revision, "over": pin.over, "author": pin.author, "reason": pin.reason}
    message = f"{name} at {site} {what}: {pin.reason}"
    return NewEvent(
        EventKind.DEPLOYMENT_PINNED, pin.at, message, site=site, deployment_id=pin.deployment_id, data=data
    )


def node_events(before: Node | None, node: Node, now: datetime) -> list[NewEvent]:
    """The events of a change: that a node joined, its liveness changed, or it is drained."""

    def event(kind: EventKind, what: str, **data: Any) -> NewEvent:
        return NewEvent(kind, now, f"node {node.id} {what}", site=node.site, node_id=node.id, data=data)

    if before is None:
        return [event(EventKind.NODE_JOINED, f"joined {node.site}", liveness=node.liveness.value)]
    events = []
    if before.liveness is not node.liveness:
        liveness = {"before": before.liveness.value, "liveness": node.liveness.value}
        events.append(event(EventKind.NODE_LIVENESS, f"is {node.liveness}", **liveness))
    if before.drain != node.drain:
        kind = EventKind.NODE_UNDRAINED if node.drain is None else EventKind.NODE_DRAINED
        what = "takes work again" if node.drain is None else f"is being emptied: {node.drain}"
        events.append(event(kind, what, reason=node.drain or ""))
    if before.tunable != node.tunable:
        events.append(event(EventKind.NODE_SETTINGS, "has other settings", **asdict(node.tunable)))
    return events


def node_left_event(site: SiteName, node_id: NodeId, now: datetime) -> NewEvent:
    return NewEvent(EventKind.NODE_LEFT, now, f"node {node_id} left {site}", site=site, node_id=node_id)


def synced_event(site: SiteName, commit: Commit, *, deployments: int, problems: int, now: datetime) -> NewEvent:
    data = {"commit": commit, "deployments": deployments, "problems": problems}
    return NewEvent(EventKind.SITE_SYNCED, now, f"site {site} follows commit {commit[:8]}", site=site, data=data)


def site_problem_event(
    site: SiteName, problem: str, now: datetime, deployment_id: DeploymentId | None = None
) -> NewEvent:
    message = f"site {site}: {problem}"
    return NewEvent(EventKind.SITE_PROBLEM, now, message, site=site, deployment_id=deployment_id)


def resynced_event(site: SiteName, why: str, reports_lost: int, since: datetime | None, now: datetime) -> NewEvent:
    message = f"{site} restates the state of everything: {why}"
    if reports_lost:
        waited = "" if since is None else f" since {since:%Y-%m-%d %H:%M:%S} UTC"
        message += f"; {reports_lost} reports that waited{waited} were dropped"
    data = {"why": why, "reports_lost": reports_lost, "since": None if since is None else since.isoformat()}
    return NewEvent(EventKind.SITE_RESTATED, now, message, site=site, data=data)


def _source(commit: Commit, author: str | None) -> str:
    return f"commit {commit[:8]}" + ("" if author is None else f" by {author}")
