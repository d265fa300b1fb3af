"""Says anew how everything at a site stands, in the place of whatever waited to be told.

Two things ask for it: an outbox that is full, whose history gives way while the present never does; and a central
that has lost its memory, to which later steps would mean nothing. Dropping and saying anew are one transaction, so a
crash leaves either the old queue or the new one (ADR 0024).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from homeport.core.model.event import NewEvent
from homeport.core.model.report import (
    HoldsChanged,
    NodeChanged,
    Pinned,
    Report,
    Restated,
    Restating,
    Synced,
    SyncFailed,
)
from homeport.core.reconcile.plan import Key
from homeport.fleet.memory import Memory
from homeport.ports import Outgoing, Transaction
from homeport.vocabulary import DeploymentId, EventKind, NodeId, SiteName

OUTBOX_BYTES_MAX: Final = 8_000_000
"""What may wait for central before history gives way: with what the database adds, below ten megabytes. Where the
present alone takes more than half of this, twice the present may wait."""
INSTANCE_BYTES: Final = 700
"""What it takes to tell anew how one instance stands, about."""
PROGRESS_QUEUED_MAX: Final = 5_000
"""Reports that wait for central before progress is no longer put among them: some two megabytes."""
DROPPED: Final = "reports_dropped"
"""Under this name a site counts all reports that it has ever dropped."""
QUEUED_AT: Final = "queued_at"
"""In every report that waits: since when."""
FULL: Final = "central took no reports for so long that no more could be kept"
FORGOTTEN: Final = "central no longer knows what it was told before"

BATCH_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 1_000_000
"""What is sent to central in one call; a single report may be larger."""

Encode = Callable[[Report], dict[str, Any]]


@dataclass(slots=True)
class Lost:
    """What gives way. What had given way before, and was not told yet, is told with it."""

    dropped: int = 0
    before: int = 0
    since: datetime | None = None
    steps: dict[Key, int] = field(default_factory=dict)
    steps_since: dict[Key, datetime] = field(default_factory=dict)

    @property
    def reports(self) -> int:
        return self.dropped + self.before

    def count(self, body: Mapping[str, Any]) -> None:
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
    """The first of these, as many as go in one call."""
    total = 0
    for count, item in enumerate(waiting[:BATCH_MAX]):
        total += item.size_bytes
        if count and total > BATCH_BYTES_MAX:
            return waiting[:count]
    return waiting[:BATCH_MAX]


async def restate(tx: Transaction, memory: Memory, encode: Encode, *, why: str, now: datetime) -> Lost:
    """Drops what waits and puts the present in its place. `memory` is what is durable.

    The first batch stays where central may have taken it already and only the word of that was lost, so that
    nothing counts as lost which central has. One that has forgotten everything can do nothing with it.
    """
    under_way = () if why == FORGOTTEN else one_batch(await tx.outbox(limit=BATCH_MAX))
    kept = after = under_way[-1].sequence if under_way else 0
    lost = Lost()
    while rows := await tx.outbox(limit=BATCH_MAX, after=after):
        for row in rows:
            lost.count(row.body)
        after = rows[-1].sequence
    await tx.drop_outbox(kept)
    await tx.enqueue([{**encode(report), QUEUED_AT: now.isoformat()} for report in _present(memory, lost, why)])
    await tx.append_events([restated_event(memory.site, why, lost.reports, lost.since, now)])
    if lost.dropped:
        await tx.set_value(DROPPED, str(int(await tx.value(DROPPED) or 0) + lost.dropped))
    return lost


def restated_event(site: SiteName, why: str, reports_lost: int, since: datetime | None, now: datetime) -> NewEvent:
    """The same words at the site and at central."""
    message = f"{site} says anew how everything stands: {why}"
    if reports_lost:
        waited = "" if since is None else f" since {since:%Y-%m-%d %H:%M:%S} UTC"
        message += f"; {reports_lost} reports that waited{waited} were dropped"
    data = {"why": why, "reports_lost": reports_lost, "since": None if since is None else since.isoformat()}
    return NewEvent(EventKind.SITE_RESTATED, now, message, site=site, data=data)


def _present(memory: Memory, lost: Lost, why: str) -> Iterator[Report]:
    """Everything a reader needs who knows nothing yet, in the order in which it is understood."""
    yield Restating(why, tuple(sorted(memory.nodes)), tuple(sorted(memory.instances)), lost.reports, lost.since)
    for _, node in sorted(memory.nodes.items()):
        yield NodeChanged(node)
    yield HoldsChanged(memory.holds)
    if memory.applied is not None:
        yield Synced(memory.applied, tuple(sorted(memory.wanted)))
    if memory.complaint is not None:
        yield SyncFailed(memory.complaint)
    for key, instance in sorted(memory.instances.items()):
        yield Restated(instance, lost.steps.get(key, 0), lost.steps_since.get(key))
    for _, pin in sorted(memory.pins.items()):
        yield Pinned(pin)
