"""Central's side of the outbox: reports of sites become rows, history and events, in order and once.

A batch is applied in memory and written together with its cursor, so a crash repeats a batch or not, and never half
of it. A site may report only on its own deployments and nodes; anything else becomes an event. A report that cannot
be decoded or applied, whatever it raises, is set aside: an event is written, the report is stored as received, and
those before and after it are processed.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from homeport.core.model.event import NewEvent, Site
from homeport.core.model.instance import Instance, RecordedRollback, Transition
from homeport.core.model.protocol import OWN, PeerProtocol, skew
from homeport.core.model.report import Pinned, Report, Resync, Synced
from homeport.errors import Conflict, InvalidInput, PeerIncompatible, PermanentError, TransientError, UnknownKind
from homeport.fleet.central.index import Index, NotInHistory
from homeport.fleet.central.reports.batch import Numbered, ReportBatch, Unusable
from homeport.fleet.central.sites.site_starts import (
    DUPLICATE_SECONDS,
    Starts,
    dump_starts,
    duplicate_text,
    load_starts,
)
from homeport.fleet.central.tracing import trace_intake
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    ROLLED_BACK_MAX,
    Ahead,
    Clock,
    DeploymentFilter,
    JoinAnswer,
    Lineage,
    Outgoing,
    SetAside,
    Store,
    Tracer,
    Transaction,
)
from homeport.vocabulary import EventKind, Generation, Incarnation, NodeId, SiteName, State
from homeport.wire.reports import UNKNOWN_KIND, decode, is_known, kind_of

RETURN_SECONDS: Final = 30.0
"""A site that rejoins after less silence than this causes no event."""

HISTORY_SECONDS: Final = 3_600.0
"""How long a site keeps its reports while the branch does not contain the commit that it follows: processed without
it, they would be lost."""

_LEAVING: Final = frozenset({State.DELETING, State.DELETED})

log = get_log("homeport.fleet.central.reports.intake")
WHY_MAX: Final = 500


OnAside = Callable[[int, str, str], None]
"""Called with sequence, code and reason of a report that was set aside."""
Taken = tuple[int, Sequence[Numbered]]
"""The last sequence, and the new reports."""


class OutOfStep(Conflict):
    """The site and central do not agree on which report comes next."""


@dataclass(frozen=True, slots=True)
class ReportIntake:
    store: Store
    index: Index
    clock: Clock
    tracer: Tracer | None = None
    duplicates: dict[SiteName, datetime] = field(default_factory=dict)
    """Sites that run twice, and when one last displaced the other."""
    astray: dict[SiteName, float] = field(default_factory=dict)
    """Since when sites follow a commit that is not in the branch."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reports set aside since the start, by code."""

    async def join(
        self,
        site: SiteName,
        *,
        epoch: str,
        software_version: str,
        lineage: Lineage | None = None,
        protocol: PeerProtocol = OWN,
    ) -> JoinAnswer:
        """Registers a site and returns its last durable sequence. A site that was restored from an older copy of its
        database, or runs twice, is not admitted with the epoch that the other one used. Raises PeerIncompatible for
        one that is too many releases older or newer; it keeps its reports until then."""
        now = self.clock.now()
        refusal = skew_text(site, protocol)
        if refusal is not None:
            await self.store.write(lambda tx: _note_skew(tx, site, protocol, refusal, now))
            raise PeerIncompatible(refusal)

        async def write(tx: Transaction) -> JoinAnswer:
            known, cursor = await tx.site(site), await _cursor(tx, site)
            before = await tx.value_as(f"starts:{site}", load_starts) or Starts()
            if cursor is not None and cursor.epoch == epoch and before.are_ahead_of(lineage, cursor.sequence or 0):
                return JoinAnswer(cursor.sequence or 0, await _highest(tx, site), is_let_in=False, protocol=OWN)
            # Until it has reported once, its first answer may have been lost on the way.
            has_forgotten = cursor is not None and (cursor.epoch != epoch or cursor.sequence is None)
            row = known or Site(site, joined_at=now, last_seen=None, applied_commit=None)
            last_seen = row.last_seen
            events = await self._note_start(tx, site, before, lineage, now)
            problem = None if row.problem == skew_text(site, row.protocol) else row.problem
            row = replace(row, last_seen=now, silent_since=None, problem=problem)
            await tx.put_site(replace(row, software_version=software_version, protocol=protocol))
            if cursor is None or cursor.epoch != epoch:
                await _set_cursor(tx, site, _Cursor(epoch, None))
                cursor = None
            if cursor is None or last_seen is None or now - last_seen > timedelta(seconds=RETURN_SECONDS):
                message = f"site {site} joined" if last_seen is None else f"site {site} is back"
                events.append(NewEvent(EventKind.SITE_JOINED, now, message, site=site))
            await tx.append_events(events)
            is_repeated = cursor is not None
            ahead = await _highest(tx, site) if has_forgotten else None
            if is_repeated and ahead is not None and ahead.generation == 0:
                ahead = None  # There was no time before this epoch.
            return JoinAnswer(cursor.sequence or 0 if cursor else 0, ahead, protocol=OWN)

        joined = await self.store.write(write)
        log.info("site joined", site=site, reported_up_to=joined.sequence, has_forgotten=joined.ahead is not None)
        return joined

    async def _note_start(
        self, tx: Transaction, site: SiteName, before: Starts, lineage: Lineage | None, now: datetime
    ) -> list[NewEvent]:
        if lineage is None or not lineage.starts:
            return []
        after = before.joined_by(lineage.starts[-1])
        if after != before:
            await tx.set_value(f"starts:{site}", dump_starts(after))
        if not after.are_duplicates:
            self.duplicates.pop(site, None)
            return []
        is_news = not before.are_duplicates
        self.duplicates[site] = now
        return [NewEvent(EventKind.SITE_PROBLEM, now, duplicate_text(site), site=site)] if is_news else []

    def with_duplicate_problem(self, row: Site, now: datetime) -> Site:
        """Sets the problem of a site that runs twice, for as long as they keep displacing each other."""
        since = self.duplicates.get(row.name)
        if since is not None and now - since < timedelta(seconds=DUPLICATE_SECONDS):
            return replace(row, problem=duplicate_text(row.name))
        return replace(row, problem=None) if row.problem == duplicate_text(row.name) else row

    async def take(
        self,
        site: SiteName,
        reports: Sequence[Outgoing],
        *,
        epoch: str,
        seen: Mapping[NodeId, datetime],
        start: str = "",
        on_aside: OnAside = lambda sequence, code, why: None,
    ) -> int:
        """Returns the last sequence that is durable here; `on_aside` is called for reports set aside. Raises Conflict
        for a gap, a site that has not joined, or a start that another one has replaced; and a TransientError when a
        deployment is unknown and Git cannot be fetched."""
        began = self.clock.now()
        decoded = [(item.sequence, _decode(item)) for item in reports]
        bodies = {item.sequence: item.body for item in reports}
        work = _Work(self, site, epoch, start, bodies, _believable(seen, began))
        taken = await work.take_if_known(decoded)
        if taken is None:
            # The site may have seen a commit before we did: fetch first, then process its reports.
            await self.index.catch_up()
            for _, report in decoded:
                if isinstance(report, Resync):
                    await self.index.recall(site, {deployment_id for deployment_id, _ in report.instances})
                elif isinstance(report, Synced):
                    await self._look_back(site, report)
                elif isinstance(report, Pinned):
                    await self.index.find_revision(site, report.pin.deployment_id, report.pin.revision)
            taken = await work.take_each(decoded)
        last, fresh = taken
        for sequence, report in fresh:
            if isinstance(report, Unusable):
                code = (UnknownKind if UNKNOWN_KIND in report.why else InvalidInput).code
                self.refused[code] += 1
                on_aside(sequence, code, report.why[:WHY_MAX])
        if self.tracer is not None and fresh:
            steps = {sequence: report for sequence, report in fresh if isinstance(report, Transition)}
            reported = [(item, steps[item.sequence]) for item in reports if item.sequence in steps]
            trace_intake(self.tracer, site, reported, began, self.clock.now())
        return last

    async def reread(self) -> None:
        """Processes reports that an earlier version set aside because it did not know their kind. Called before newer
        ones are processed, so that reports of one kind stay in order."""
        async with self.store.read() as reader:
            aside = await reader.set_aside()
        for each in aside:
            if is_known(each.kind) and UNKNOWN_KIND in each.why:
                try:
                    await self.store.write(partial(_take_late, each))
                except TransientError:
                    raise
                except Exception as error:
                    log.exception("report stays set aside", error=error, site=each.site, sequence=each.sequence)

    async def _look_back(self, site: SiteName, report: Synced) -> None:
        """The commit comes from the site: one that Git does not have changes nothing. Raises NotInHistory while it
        may still be pushed again."""
        try:
            await self.index.look_back(site, report.commit, report.deployment_ids)
            self.astray.pop(site, None)
        except NotInHistory as error:
            moment = self.clock.monotonic()
            if moment - self.astray.setdefault(site, moment) < HISTORY_SECONDS:
                raise
            log.warning("site commit not found", site=site, commit=report.commit[:40], why=str(error))
        except PermanentError as error:
            log.warning("site commit not found", site=site, commit=report.commit[:40], why=str(error))


@dataclass(frozen=True, slots=True)
class _Work:
    """The reports of one call."""

    intake: ReportIntake
    site: SiteName
    epoch: str
    start: str
    """Empty of sites that do not name it."""
    bodies: Mapping[int, Mapping[str, Any]]
    seen: Mapping[NodeId, datetime]

    async def take_if_known(self, reports: Sequence[Numbered]) -> Taken | None:
        """None, with nothing written, when a report is about an unknown deployment, or one cannot be processed."""
        try:
            return await self._write(reports, must_know=True)
        except (TransientError, OutOfStep):
            raise
        except Exception:  # noqa: BLE001 - happens again in `take_each`, which finds the bad report
            return None

    async def take_each(self, reports: Sequence[Numbered]) -> Taken:
        """Processes all in one transaction; if that fails, by bisection down to the one bad report, which is set
        aside."""
        try:
            taken = await self._write(reports, must_know=False)
        except (TransientError, OutOfStep):
            raise
        except Exception as error:  # noqa: BLE001 - a bad report must not end central, nor block others
            if len(reports) <= 1:
                return await self._set_aside(reports, error)
            half = len(reports) // 2
            _, first = await self.take_each(reports[:half])
            last, second = await self.take_each(reports[half:])
            return last, [*first, *second]
        assert taken is not None, "asked to judge, it judges"
        return taken

    async def _set_aside(self, reports: Sequence[Numbered], error: Exception) -> Taken:
        if not reports or isinstance(reports[0][1], Unusable):
            raise error
        sequence, body = reports[0][0], self.bodies[reports[0][0]]
        log.exception("report could not be applied", error=error, site=self.site, sequence=sequence)
        why = f"it could not be applied ({type(error).__name__}: {str(error)[:WHY_MAX]})"
        taken = await self._write([(sequence, Unusable(why, kind_of(body), body))], must_know=False)
        assert taken is not None, "asked to judge, it judges"
        return taken

    async def _write(self, reports: Sequence[Numbered], *, must_know: bool) -> Taken | None:
        """None, with nothing written, when `must_know` and a report is about an unknown deployment."""
        now = self.intake.clock.now()

        async def write(tx: Transaction) -> Taken | None:
            cursor = await _cursor(tx, self.site)
            row = await tx.site(self.site)
            if row is None or cursor is None or cursor.epoch != self.epoch:
                raise OutOfStep(
                    f'Site "{self.site}" has not joined with this epoch.',
                    hint=f"PUT /api/v1/sites/{self.site} first.",
                )
            if self.start and await self._is_replaced(tx):
                raise OutOfStep(f'Site "{self.site}" was restarted since.', hint="The new start sends its reports.")
            new = _continue(cursor, reports)
            batch = ReportBatch(site=row, now=now)
            await batch.load(tx, new, self.seen)
            if must_know and not batch.is_complete:
                return None
            batch.take(new)
            batch.site = self.intake.with_duplicate_problem(batch.site, now)
            await batch.write(tx, self.seen)
            aside = [(sequence, report) for sequence, report in new if isinstance(report, Unusable)]
            await tx.put_aside([self._evidence(sequence, report, now) for sequence, report in aside])
            last = new[-1][0] if new else cursor.sequence
            if new:
                await _set_cursor(tx, self.site, _Cursor(self.epoch, last))
            return last or 0, new

        return await self.intake.store.write(write)

    async def _is_replaced(self, tx: Transaction) -> bool:
        """A report that was long on its way has the number of another one, if the site's database is an older copy by
        now: taken for it, it would hide what the site does since then."""
        seen = await tx.value_as(f"starts:{self.site}", load_starts)
        return seen is not None and seen.current not in (None, self.start)

    def _evidence(self, sequence: int, report: Unusable, now: datetime) -> SetAside:
        body = json.dumps(report.body, default=repr)
        return SetAside(self.site, self.epoch, sequence, report.kind, report.why, body, now)


@dataclass(frozen=True, slots=True)
class _Cursor:
    epoch: str
    sequence: int | None
    """None before the first report of an epoch: the site decides where it begins."""


def skew_text(site: SiteName, protocol: PeerProtocol) -> str | None:
    return skew(f"site {site}", protocol, us="central")


async def _note_skew(tx: Transaction, site: SiteName, protocol: PeerProtocol, refusal: str, now: datetime) -> None:
    """Shown on the site until it joins, and logged once as an event."""
    row = await tx.site(site) or Site(site, joined_at=now, last_seen=None, applied_commit=None)
    if row.problem == refusal and row.protocol == protocol:
        return
    await tx.put_site(replace(row, problem=refusal, protocol=protocol))
    await tx.append_events([NewEvent(EventKind.SITE_PROBLEM, now, refusal, site=site)])
    log.warning("site refused, version skew", site=site, why=refusal)


async def _highest(tx: Transaction, site: SiteName) -> Ahead:
    """The highest numbers known here that the site has assigned, and what was rolled back there."""
    rows = [
        *await tx.deployments(DeploymentFilter(site=site)),
        *await tx.deployments(DeploymentFilter(site=site, archived=True)),
    ]
    items = await tx.instances(sorted(row.id for row in rows))
    return Ahead(
        max((item.generation for item in items), default=Generation(0)),
        max((item.incarnation for item in items), default=Incarnation(0)),
        _rolled_back(items),
    )


def _rolled_back(items: Sequence[Instance]) -> tuple[RecordedRollback, ...]:
    return tuple(
        RecordedRollback(
            item.deployment_id, item.node_id, item.rejected_revision, item.revision, item.rejected_for or item.failure
        )
        for item in sorted(items, key=lambda each: each.updated_at, reverse=True)
        if item.rejected_revision is not None and item.revision is not None and item.state not in _LEAVING
    )[:ROLLED_BACK_MAX]


async def _cursor(tx: Transaction, site: SiteName) -> _Cursor | None:
    return await tx.value_as(f"reports:{site}", _cursor_of)


def _cursor_of(text: str) -> _Cursor | None:
    if not text.strip():
        return None
    epoch, _, sequence = text.rpartition(" ")
    return _Cursor(epoch, int(sequence) if sequence else None)


async def forget_cursor(tx: Transaction, site: SiteName) -> None:
    """A site of this name that joins later starts from the beginning."""
    await tx.set_value(f"reports:{site}", " ")


async def _set_cursor(tx: Transaction, site: SiteName, cursor: _Cursor) -> None:
    sequence = "" if cursor.sequence is None else str(cursor.sequence)
    await tx.set_value(f"reports:{site}", f"{cursor.epoch} {sequence}")


def _continue(cursor: _Cursor, reports: Sequence[Numbered]) -> list[Numbered]:
    """The reports not seen before. Raises Conflict where one is missing, unless the site reports that it was
    dropped."""
    expected = cursor.sequence + 1 if cursor.sequence is not None else None
    new = []
    for sequence, report in reports:
        if expected is not None and sequence < expected:
            continue
        if expected is not None and sequence != expected and not isinstance(report, Resync):
            raise OutOfStep(f"Report {expected} is expected, but {sequence} came.", hint="Send them in order.")
        new.append((sequence, report))
        expected = sequence + 1
    return new


def _decode(item: Outgoing) -> Report | Unusable:
    try:
        return decode(item.body)
    except InvalidInput as error:
        return Unusable(str(error), kind_of(item.body), item.body)


def _believable(seen: Mapping[NodeId, datetime], now: datetime) -> dict[NodeId, datetime]:
    """The plausible times of nodes' heartbeats: none in the future, none that cannot be converted."""
    times = {}
    for node_id, at in seen.items():
        try:
            times[node_id] = min(at.astimezone(UTC), now)
        except (OverflowError, ValueError):
            log.warning("heartbeat timestamp ignored", node=node_id)
    return times


async def _take_late(aside: SetAside, tx: Transaction) -> None:
    site = await tx.site(aside.site)
    if site is not None:
        # Processing it again is not a contact with the site.
        batch = ReportBatch(site=site, now=site.last_seen or aside.at)
        reports = [(aside.sequence, decode(json.loads(aside.body)))]
        await batch.load(tx, reports, {})
        batch.take(reports)
        await batch.write(tx, {})
    await tx.drop_aside([aside])
