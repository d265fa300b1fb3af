"""How many status reports a store makes durable in a second.

A report is what central does for each piece of news: one guarded update of an instance, one row of history, one
event.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

import anyio

from homeport.core.model.event import HistoryEntry, NewEvent
from homeport.core.model.instance import Instance
from homeport.ports import Store, Transaction
from homeport.vocabulary import (
    Actor,
    DeploymentId,
    Digest,
    EventKind,
    Generation,
    Incarnation,
    NodeId,
    SiteName,
    State,
    Trigger,
)

_REVISION = Digest("sha256:" + "0" * 64)


@dataclass(frozen=True, slots=True)
class Load:
    callers: int
    writes_per_caller: int
    reports_per_write: int

    @property
    def reports(self) -> int:
        return self.callers * self.writes_per_caller * self.reports_per_write


async def reports_per_second(store: Store, load: Load) -> float:
    """Every caller awaits each of its writes, as a site awaits the answer to its reports."""
    fleets = [[_instance() for _ in range(load.reports_per_write)] for _ in range(load.callers)]
    for fleet in fleets:
        await store.write(lambda tx, fleet=fleet: tx.put_instances(fleet))  # type: ignore[misc]
    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for fleet in fleets:
            tasks.start_soon(_report, store, fleet, load.writes_per_caller)
    return load.reports / (time.perf_counter() - started)


async def _report(store: Store, instances: Sequence[Instance], times: int) -> None:
    for _ in range(times):
        instances = [
            replace(instance, version=instance.version + 1, updated_at=datetime.now(UTC)) for instance in instances
        ]
        await store.write(_work(instances))


def _work(instances: Sequence[Instance]) -> Callable[[Transaction], Awaitable[None]]:
    async def work(tx: Transaction) -> None:
        await tx.put_instances(instances)
        await tx.append_history([_entry(instance) for instance in instances])
        await tx.append_events([_event(instance) for instance in instances])

    return work


def _instance() -> Instance:
    return Instance(
        deployment_id=DeploymentId(str(uuid4())),
        node_id=NodeId("node-1"),
        incarnation=Incarnation(1),
        state=State.INSTALLING,
        version=1,
        generation=Generation(1),
        revision=_REVISION,
        running_revision=None,
        attempt=1,
        step="pulling hello:1.0.0",
        failure=None,
        updated_at=datetime.now(UTC),
    )


def _entry(instance: Instance) -> HistoryEntry:
    return HistoryEntry(
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        incarnation=instance.incarnation,
        before=State.INSTALLING,
        after=State.INSTALLED,
        trigger=Trigger.HEALTHY,
        actor=Actor.NODE,
        reason="all components are healthy",
        at=instance.updated_at,
        revision=instance.revision,
    )


def _event(instance: Instance) -> NewEvent:
    return NewEvent(
        kind=EventKind.INSTANCE_STATE,
        at=instance.updated_at,
        message="hello is INSTALLED on node-1",
        site=SiteName("home"),
        deployment_id=instance.deployment_id,
        node_id=instance.node_id,
        data={"before": "INSTALLING", "after": "INSTALLED", "trigger": "healthy"},
    )
