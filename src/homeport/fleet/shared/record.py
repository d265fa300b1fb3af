"""Makes transitions durable: load what they touch, decide in the core, write it all in one transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from homeport.core.lifecycle.record import Recorded, ReportedStep, record
from homeport.ports import Transaction
from homeport.vocabulary import EventKind, Step

_KINDS: Final = {Step.DRIFTED: EventKind.DRIFT_FOUND, Step.RESTORED: EventKind.DRIFT_REPAIRED}


def kind_of(step: Step) -> EventKind:
    """Reports of a node are progress, except those about something without an order."""
    return _KINDS.get(step, EventKind.DEPLOYMENT_PROGRESS)


async def record_transitions(tx: Transaction, steps: Sequence[ReportedStep], now: datetime) -> Recorded:
    """Steps the named instances and their deployments. Refused transitions are in `refused` and in the log."""
    ids = sorted({item.deployment_id for item in steps})
    deployments = {deployment.id: deployment for deployment in await tx.deployments_by_ids(ids)}
    instances = {instance.key: instance for instance in await tx.instances(ids)}
    recorded = record(instances, deployments, steps, now)
    await tx.put_instances(recorded.instances)
    await tx.put_deployments(recorded.deployments)
    await tx.append_history(recorded.history)
    await tx.append_events(recorded.events)
    return recorded
