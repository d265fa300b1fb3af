"""Central's side of the outbox: what sites report becomes rows, history and events, in order and once.

A batch is decided in memory and written together with the cursor that says how far it got, so a crash repeats a
batch or not, and never half of it. A site speaks of its own deployments and nodes only; what it may not say, or
nobody understands, becomes an event and spoils nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from homeport.core.model.event import NewEvent, Site
from homeport.core.model.instance import Transition
from homeport.core.model.report import Report, Restating, Synced
from homeport.errors import Conflict, InvalidInput
from homeport.fleet.batch import Batch, Numbered, Unreadable
from homeport.fleet.index import Index
from homeport.fleet.tracing import trace_intake
from homeport.ports import Clock, Outgoing, Store, Tracer, Transaction
from homeport.vocabulary import EventKind, NodeId, SiteName
from homeport.wire.reports import decode

RETURN_SECONDS: Final = 30.0
"""A site that joins again after less silence than this says nothing new."""

log = structlog.get_logger("homeport.fleet.intake")


@dataclass(frozen=True, slots=True)
class Intake:
    store: Store
    index: Index
    clock: Clock
    tracer: Tracer | None = None

    async def join(self, site: SiteName, *, epoch: str, software_version: str) -> int:
        """Makes a site known; returns the last sequence of this epoch that is durable here."""
        now = self.clock.now()

        async def write(tx: Transaction) -> int:
            known = await tx.site(site)
            cursor = await _cursor(tx, site)
            row = known or Site(site, joined_at=now, last_seen=None, applied_commit=None)
            await tx.put_site(replace(row, last_seen=now, software_version=software_version))
            if cursor is None or cursor.epoch != epoch:
                await _set_cursor(tx, site, _Cursor(epoch, None))
                cursor = None
            if cursor is None or row.last_seen is None or now - row.last_seen > timedelta(seconds=RETURN_SECONDS):
                message = f"site {site} joined" if row.last_seen is None else f"site {site} is back"
                await tx.append_events([NewEvent(EventKind.SITE_JOINED, now, message, site=site)])
            return cursor.sequence or 0 if cursor else 0

        last = await self.store.write(write)
        log.info("site joined", site=site, reported_up_to=last)
        return last

    async def take(
        self, site: SiteName, reports: Sequence[Outgoing], *, epoch: str, seen: Mapping[NodeId, datetime]
    ) -> int:
        """Returns the last sequence that is durable here. Raises Conflict for a gap, or a site that has not
        joined; and a TransientError when a deployment is unknown and Git cannot be asked for it."""
        began = self.clock.now()
        decoded = [(item.sequence, _decode(item)) for item in reports]
        taken = await self._take(site, decoded, epoch=epoch, seen=seen, must_know=True)
        if taken is None:
            # The site may have seen a commit before we did: look at the repository, then judge its news.
            await self.index.catch_up()
            for _, report in decoded:
                if isinstance(report, Synced):
                    await self.index.look_back(site, report.commit, report.deployment_ids)
            taken = await self._take(site, decoded, epoch=epoch, seen=seen, must_know=False)
        assert taken is not None, "asked to judge, it judges"
        last, fresh = taken
        if self.tracer is not None and fresh:
            steps = {sequence: report for sequence, report in fresh if isinstance(report, Transition)}
            told = [(item, steps[item.sequence]) for item in reports if item.sequence in steps]
            trace_intake(self.tracer, site, told, began, self.clock.now())
        return last

    async def _take(
        self,
        site: SiteName,
        decoded: Sequence[Numbered],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        must_know: bool,
    ) -> tuple[int, Sequence[Numbered]] | None:
        """How far it got and what was new; None, with nothing written, when `must_know` and a report speaks of a
        deployment unknown here."""
        now = self.clock.now()

        async def write(tx: Transaction) -> tuple[int, Sequence[Numbered]] | None:
            cursor = await _cursor(tx, site)
            row = await tx.site(site)
            if row is None or cursor is None or cursor.epoch != epoch:
                raise Conflict(
                    f'Site "{site}" has not joined with this epoch.', hint=f"PUT /api/v1/sites/{site} first."
                )
            new = _continue(cursor, decoded)
            batch = Batch(site=row, now=now)
            await batch.load(tx, new, seen)
            if must_know and not batch.is_complete:
                return None
            batch.take(new)
            await batch.write(tx, seen)
            last = new[-1][0] if new else cursor.sequence
            if new:
                await _set_cursor(tx, site, _Cursor(epoch, last))
            return last or 0, new

        return await self.store.write(write)


@dataclass(frozen=True, slots=True)
class _Cursor:
    epoch: str
    sequence: int | None
    """None before the first report of an epoch: where it begins is for the site to say."""


async def _cursor(tx: Transaction, site: SiteName) -> _Cursor | None:
    text = await tx.value(f"reports:{site}")
    if text is None:
        return None
    epoch, _, sequence = text.rpartition(" ")
    return _Cursor(epoch, int(sequence) if sequence else None)


async def _set_cursor(tx: Transaction, site: SiteName, cursor: _Cursor) -> None:
    sequence = "" if cursor.sequence is None else str(cursor.sequence)
    await tx.set_value(f"reports:{site}", f"{cursor.epoch} {sequence}")


def _continue(cursor: _Cursor, reports: Sequence[Numbered]) -> list[Numbered]:
    """Those not seen before. Raises Conflict where one is missing, unless the site says that it has dropped it."""
    expected = cursor.sequence + 1 if cursor.sequence is not None else None
    new = []
    for sequence, report in reports:
        if expected is not None and sequence < expected:
            continue
        if expected is not None and sequence != expected and not isinstance(report, Restating):
            raise Conflict(f"Report {expected} is expected, but {sequence} came.", hint="Send them in order.")
        new.append((sequence, report))
        expected = sequence + 1
    return new


def _decode(item: Outgoing) -> Report | Unreadable:
    try:
        return decode(item.body)
    except InvalidInput as error:
        return Unreadable(str(error))
