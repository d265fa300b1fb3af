"""Applies a batch of transitions to the known records: new rows, history lines and events, all as values.

The site records its own steps with this and central those that sites report, so the two agree. A transition that the
table refuses does not affect the others: it becomes an event with the reason. Resynced snapshots are copied.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from homeport.core.lifecycle.deployment import fold
from homeport.core.lifecycle.replay import apply_snapshot, begins_midway, replay, resume
from homeport.core.model.event import Deployment, HistoryEntry, NewEvent
from homeport.core.model.instance import Failure, Instance, Transition
from homeport.core.model.report import InstanceSnapshot
from homeport.errors import IllegalTransition
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, EventKind, NodeId, State

Key = tuple[DeploymentId, NodeId]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records to write. Versions are one above the stored ones, however many steps the batch had."""

    instances: tuple[Instance, ...]
    deployments: tuple[Deployment, ...]
    history: tuple[HistoryEntry, ...]
    events: tuple[NewEvent, ...]
    refused: tuple[tuple[Transition, str], ...]


ReportedStep = Transition | InstanceSnapshot


def record(
    instances: Mapping[Key, Instance],
    deployments: Mapping[DeploymentId, Deployment],
    steps: Sequence[ReportedStep],
    now: datetime,
    *,
    returned: Collection[DeploymentId] = (),
) -> Recorded:
    """`instances` holds every instance of each deployment in the batch. Of the `returned` ones, which belonged to
    another site for a while, the first step may be one in the middle."""
    after = dict(instances)
    history: list[HistoryEntry] = []
    events: list[NewEvent] = []
    refused: list[tuple[Transition, str]] = []
    for item in steps:
        deployment = deployments.get(item.deployment_id)
        key = (item.deployment_id, item.node_id)
        if isinstance(item, InstanceSnapshot):
            stands = None if deployment is None else apply_snapshot(after.get(key), item)
            if deployment is None or stands is None:
                continue
            after[key], entry = stands
        elif deployment is None:
            refused.append((item, "there is no such deployment here"))
            continue
        else:
            is_resumed = key not in after and item.deployment_id in returned and begins_midway(item)
            try:
                after[key], entry = resume(item) if is_resumed else replay(after.get(key), item)
            except IllegalTransition as error:
                refused.append((item, str(error)))
                events.append(_refusal(deployment, item, str(error)))
                continue
        history.append(entry)
        events.append(_instance_event(deployment, item, entry))
    changed = tuple(
        replace(instance, version=1 if _is_new(instances.get(key), instance) else instances[key].version + 1)
        for key, instance in after.items()
        if instance is not instances.get(key)
    )
    moved = _refold(after, deployments, {instance.deployment_id for instance in changed}, now)
    failures = _first_failures(after)
    events.extend(_deployment_event(deployments[item.id], item, failures.get(item.id), now) for item in moved)
    return Recorded(changed, moved, tuple(history), tuple(events), tuple(refused))


def _is_new(before: Instance | None, after: Instance) -> bool:
    return before is None or after.incarnation > before.incarnation


def _refold(
    instances: Mapping[Key, Instance],
    deployments: Mapping[DeploymentId, Deployment],
    touched: set[DeploymentId],
    now: datetime,
) -> tuple[Deployment, ...]:
    """The deployments whose state the batch changed. Permanently deleted ones are archived."""
    states: dict[DeploymentId, list[tuple[NodeId, State]]] = {}
    for (deployment_id, node_id), instance in instances.items():
        if deployment_id in touched:
            states.setdefault(deployment_id, []).append((node_id, instance.state))
    moved = []
    for deployment_id in sorted(touched):
        deployment = deployments[deployment_id]
        state = fold(states.get(deployment_id, ()), wanted=deployment.wanted)
        if state is not deployment.state:
            archived_at = now if state is State.DELETED and not deployment.wanted else deployment.archived_at
            moved.append(
                replace(
                    deployment, state=state, version=deployment.version + 1, updated_at=now, archived_at=archived_at
                )
            )
    return tuple(moved)


def _instance_event(deployment: Deployment, item: ReportedStep, entry: HistoryEntry) -> NewEvent:
    place = entry.node_id or "no node"
    return NewEvent(
        kind=EventKind.INSTANCE_STALE if entry.verdict == "stale" else EventKind.INSTANCE_STATE,
        at=entry.at,
        message=f"{deployment.name} on {place}: {entry.before} → {entry.after}, {entry.reason}",
        site=deployment.site,
        deployment_id=deployment.id,
        node_id=entry.node_id,
        data={
            "before": entry.before.value,
            "after": entry.after.value,
            "trigger": entry.trigger.value,
            "actor": entry.actor.value,
            "reason": entry.reason,
            "revision": entry.revision,
            "generation": item.instance.generation if isinstance(item, InstanceSnapshot) else item.generation,
            "failure": failure_data(entry.failure),
        },
    )


def _refusal(deployment: Deployment, transition: Transition, why: str) -> NewEvent:
    return NewEvent(
        kind=EventKind.DEPLOYMENT_REFUSED,
        at=transition.at,
        message=f"{deployment.name} on {transition.node_id or 'no node'}: {why}; nothing has changed",
        site=deployment.site,
        deployment_id=deployment.id,
        node_id=transition.node_id,
        data={"trigger": transition.trigger.value, "actor": transition.actor.value, "why": why},
    )


def _first_failures(instances: Mapping[Key, Instance]) -> dict[DeploymentId, Failure]:
    """For each deployment with failures, that of the first node by name. Looked up once for a whole batch."""
    failed = [(key, item.failure) for key, item in instances.items() if item.failure is not None]
    return {key[0]: failure for key, failure in sorted(failed, key=lambda pair: pair[0], reverse=True)}


def _deployment_event(before: Deployment, after: Deployment, failure: Failure | None, now: datetime) -> NewEvent:
    reason = f": {failure}" if failure is not None and after.state is State.FAILED else ""
    return NewEvent(
        kind=EventKind.DEPLOYMENT_STATE,
        at=now,
        message=f"{after.name} at {after.site} is {after.state}{reason}",
        site=after.site,
        deployment_id=after.id,
        data={
            "before": before.state.value,
            "state": after.state.value,
            "name": after.name,
            "app_name": after.app_name,
            "app_version": after.app_version,
            "revision": after.revision,
            "failure": failure_data(failure),
        },
    )


def failure_data(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {"code": failure.code, "message": failure.message, "source": failure.source}
