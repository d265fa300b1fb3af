"""Full resync: queues the current state of everything at a site, in place of the queued reports.

It has two causes: a full outbox, which drops its history but never the current state; and a central that has lost its
database, for which later steps would mean nothing. Dropping and queueing are one transaction, so a crash leaves
either the old queue or the new one (ADR 0024). Where central asks for single deployments, their state follows what is
queued (ADR 0221).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final

from homeport.core.events import resynced_event
from homeport.core.model.report import (
    HoldsChanged,
    InstanceSnapshot,
    NodeChanged,
    Pinned,
    PlanSetAside,
    Report,
    Resync,
    Synced,
    SyncFailed,
)
from homeport.core.reconcile.instances import Key
from homeport.fleet.site.state import SiteState
from homeport.lazy_dataclass import dataclass
from homeport.ports import Outgoing, Transaction
from homeport.vocabulary import DeploymentId, NodeId

OUTBOX_BYTES_MAX: Final = 8_000_000
"""The size of the outbox before history is dropped: with the database's overhead, below ten megabytes. Where the
current state alone takes more than half of this, the limit is twice its size."""
INSTANCE_BYTES: Final = 700
"""Approximate size of the snapshot of one instance."""
PROGRESS_QUEUED_MAX: Final = 5_000
"""With more queued reports than this, progress is no longer queued: some two megabytes."""
DROPPED: Final = "reports_dropped"
"""The stored counter of all reports that a site has ever dropped."""
QUEUED_AT: Final = "queued_at"
"""In every queued report: since when."""
FULL: Final = "central was unreachable for so long that reports were dropped"
FORGOTTEN: Final = "central no longer has the reports it acknowledged"
RESTORED: Final = "its database is new, or an older copy"

BATCH_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 1_000_000
"""The size of one call to central; a single report may be larger."""

Encode = Callable[[Report], dict[str, Any]]


@dataclass(slots=True)
class Lost:
    """The dropped reports, including earlier drops that were not reported yet."""

    dropped: int = 0
    before: int = 0
    since: datetime | None = None
    steps: dict[Key, int] = field(default_factory=dict)
    steps_since: dict[Key, datetime] = field(default_factory=dict)

    @property
    def reports(self) -> int:
        return self.dropped + self.before

    def count(self, body: Mapping[str, Any]) -> None:
        try:
            self._count(body)
        except (KeyError, TypeError, ValueError):
            self.dropped += 1  # a row of the database that was spoilt

    def _count(self, body: Mapping[str, Any]) -> None:
        match body["kind"]:
            case "restating":
                self.before += body["reports_lost"]
                self._note(body["since"])
            case "restated":
                self._note_steps(body, body["steps_lost"], body["since"])
            case kind:
                self.dropped += 1
                self._note(body.get(QUEUED_AT))
                if kind == "transition":
                    self._note_steps(body, 1, body["at"])

    def _note(self, since: str | None) -> None:
        """Reports are counted in their order, so the first is the oldest."""
        if since is not None and self.since is None:
            self.since = datetime.fromisoformat(since)

    def _note_steps(self, body: Mapping[str, Any], count: int, since: str | None) -> None:
        key = DeploymentId(body["deployment_id"]), NodeId(body["node_id"])
        self.steps[key] = self.steps.get(key, 0) + count
        if since is not None:
            self.steps_since.setdefault(key, datetime.fromisoformat(since))


def one_batch(waiting: Sequence[Outgoing]) -> Sequence[Outgoing]:
    """The first of these, as many as fit into one call."""
    total = 0
    for count, item in enumerate(waiting[:BATCH_MAX]):
        total += item.size_bytes
        if count and total > BATCH_BYTES_MAX:
            return waiting[:count]
    return waiting[:BATCH_MAX]


async def resync(tx: Transaction, memory: SiteState, encode: Encode, *, why: str, now: datetime) -> Lost:
    """Drops the queued reports and queues the current state instead. `memory` is what is durable.

    The first batch stays where central may have processed it already and only the acknowledgement was lost, so that
    nothing counts as lost which central has. A central that has lost everything cannot use it, and one with records
    that this site has lost would misinterpret it.
    """
    under_way = () if why in (FORGOTTEN, RESTORED) else one_batch(await tx.outbox(limit=BATCH_MAX))
    kept = after = under_way[-1].sequence if under_way else 0
    lost = Lost()
    while rows := await tx.outbox(limit=BATCH_MAX, after=after):
        for row in rows:
            lost.count(row.body)
        after = rows[-1].sequence
    await tx.drop_outbox(kept)
    await tx.enqueue([{**encode(report), QUEUED_AT: now.isoformat()} for report in _present(memory, lost, why, now)])
    await tx.append_events([resynced_event(memory.site, why, lost.reports, lost.since, now)])
    if lost.dropped:
        await tx.set_value(DROPPED, str((await tx.value_as(DROPPED, int) or 0) + lost.dropped))
    return lost


def restated(memory: SiteState, deployment_ids: Collection[DeploymentId], now: datetime) -> Sequence[Report]:
    """How these deployments stand, for a central that has missed what was reported of them before."""
    named = sorted(set(deployment_ids))
    instances = [item for id_ in named for _, item in sorted(memory.instances.of_deployment(id_).items())]
    return [
        *(InstanceSnapshot(item) for item in instances),
        *(Pinned(memory.pins[deployment_id]) for deployment_id in named if deployment_id in memory.pins),
        *(PlanSetAside(deployment_id, memory.set_aside.get(deployment_id), now) for deployment_id in named),
    ]


def _present(memory: SiteState, lost: Lost, why: str, now: datetime) -> Iterator[Report]:
    """Everything for a reader without any state, in dependency order."""
    yield Resync(why, tuple(sorted(memory.nodes)), tuple(sorted(memory.instances)), lost.reports, lost.since)
    for _, node in sorted(memory.nodes.items()):
        yield NodeChanged(node)
    yield HoldsChanged(memory.holds)
    if memory.applied is not None:
        yield Synced(memory.applied, tuple(sorted(memory.wanted)))
    if memory.source_problem is not None:
        yield SyncFailed(memory.source_problem)
    for key, instance in sorted(memory.instances.items()):
        yield InstanceSnapshot(instance, lost.steps.get(key, 0), lost.steps_since.get(key), replaces=why == RESTORED)
    for _, pin in sorted(memory.pins.items()):
        yield Pinned(pin)
    for deployment_id, fault in sorted(memory.set_aside.items()):
        yield PlanSetAside(deployment_id, fault, now)
