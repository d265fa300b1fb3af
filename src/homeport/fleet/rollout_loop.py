"""Moves rollouts on: looks at every site of each, decides, and writes the next wave to Git.

Level by level: each round begins from what Git and the tables say, so a restart, a lost round or a lost race costs
nothing. Only for how long a wave was watched (`watched_seconds`) and what could not be written are kept beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import anyio
import structlog

from homeport.catalog.rollout import render_rollout, rollout_path, with_sites
from homeport.core.model.event import NewEvent
from homeport.core.model.rollout import Intent, Rollout
from homeport.core.rollout.advance import Decision, Move, advance
from homeport.core.rollout.bake import watched_after
from homeport.core.rollout.group import CLAIMING, latecomers, superseded_by
from homeport.core.rollout.listening import Listening, listen
from homeport.errors import Conflict, PermanentError, TransientError
from homeport.fleet.deploy import Along, write_targets
from homeport.fleet.overview import Watchfulness
from homeport.fleet.resolve import present_by_site, resolve
from homeport.fleet.rollout_rows import changed, rollout_event, rollout_of, row_of, stepped
from homeport.fleet.rollout_survey import Survey, look
from homeport.fleet.rollouts import Office, request_of
from homeport.ports import Change, Reader, Transaction
from homeport.vocabulary import Actor, Commit, RolloutHappening, RolloutId, RolloutState, SiteName, Standing

PAUSE_SECONDS: Final = 0.25
"""Between two rounds, however much happens: a round looks at every site of a rollout."""

KEEP_SECONDS: Final = 5.0
"""How much of a watch a crash of central may cost. Keeping each look would be a write every quarter of a second."""

log = structlog.get_logger("homeport.fleet.rollouts")


class RolloutMoved(Conflict):
    """The rollout has changed while its next wave was being written."""

    code = "rollout-moved"


@dataclass(slots=True)
class RolloutLoop:
    office: Office
    period_seconds: float
    """How often it looks when nothing happens: whether a wave has been watched long enough, who has fallen silent."""
    _listening: Listening = field(init=False)
    _seen_event: int = 0
    _next_full: float = 0.0
    _watches: dict[RolloutId, tuple[float, float]] = field(default_factory=dict)
    """Of each rollout whose newest wave is watched: for how long so far, and when it was last looked at."""

    def __post_init__(self) -> None:
        self._listening = listen(None, self.office.clock.now(), self.office.clock.monotonic())

    async def round(self) -> None:
        """Waits until something has happened, or long enough, then looks."""
        store, clock = self.office.desk.store, self.office.clock
        with anyio.move_on_after(self.period_seconds):
            await store.wait_for_event(self._seen_event)
        async with store.read() as reader:
            self._seen_event = await reader.last_event_id()
            is_busy = bool(await reader.rollouts([RolloutState.RUNNING]))
        if is_busy or clock.monotonic() >= self._next_full:
            self._next_full = clock.monotonic() + self.period_seconds
            await self.tend()

    async def tend(self) -> None:
        """One look at everything. A rollout that fails is left for the next round, and holds up no other."""
        async with self.office.desk.store.read() as reader:
            rows = await reader.rollouts(CLAIMING)
        for name in sorted({row.name for row in rows}):
            try:
                await self._tend_name(name)
            except (TransientError, PermanentError) as error:
                log.warning("rollouts of a name not moved on, will try again", name=name, why=str(error))

    async def _tend_name(self, name: str) -> None:
        desk, now = self.office.desk, self.office.clock.now()
        async with desk.store.read() as reader:
            survey = await look(
                reader,
                desk.git,
                name,
                watchfulness=self._watchfulness(),
                sightings=self.office.sightings,
                clock=self.office.clock,
            )
        for rollout in survey.rollouts:
            newer = superseded_by(rollout, survey.rollouts, survey.sites) if rollout.state in CLAIMING else None
            if newer is not None:
                reason = f"rollout {newer.intent.id[:8]} of {newer.intent.version} has taken its sites over"
                await self._step(rollout, RolloutHappening.SUPERSEDED, reason)
            elif rollout.state is RolloutState.RUNNING:
                await self._move(rollout, survey, now)
        for rollout_id, sites in latecomers(survey.rollouts, survey.sites).items():
            await self._welcome(survey, rollout_id, sites)

    def _watchfulness(self) -> Watchfulness:
        """After a start, or when the clock was set, nobody is taken for silent before they had the time to call."""
        self._listening = listen(self._listening, self.office.clock.now(), self.office.clock.monotonic())
        return replace(self.office.watchfulness, listening_since=self._listening.since)

    async def _move(self, rollout: Rollout, survey: Survey, now: datetime) -> None:
        watched = self._watched(rollout)
        decision = advance(replace(rollout, watched_seconds=watched), survey.members[rollout.intent.id])
        match decision.move:
            case Move.STOP:
                await self._step(rollout, RolloutHappening.BROKE, decision.why)
            case Move.FINISH:
                await self._step(rollout, RolloutHappening.REACHED_ALL, decision.why)
            case Move.GIVE:
                await self._give_wave(rollout, decision)
            case Move.WAIT if _is_worth_keeping(decision.watched_seconds, rollout.watched_seconds):
                await self._put(changed(rollout, now, watched_seconds=decision.watched_seconds), [])
            case Move.WAIT:
                pass

    def _watched(self, rollout: Rollout) -> float | None:
        """For how long its newest wave has been watched, up to this look."""
        rollout_id, moment = rollout.intent.id, self.office.clock.monotonic()
        watch = self._watches.pop(rollout_id, None)
        if rollout.watched_seconds is None:
            return None
        seconds, last_look = (rollout.watched_seconds, None) if watch is None else watch
        step = None if last_look is None else moment - last_look
        seconds = watched_after(seconds, step, round_seconds=self.period_seconds)
        self._watches[rollout_id] = seconds, moment
        return seconds

    async def _give_wave(self, rollout: Rollout, decision: Decision) -> None:
        intent = rollout.intent
        for number, sites in decision.waves:
            intent = with_sites(intent, number, sites)
        await self._give(rollout, intent, decision.sites, decision.why)

    async def _welcome(self, survey: Survey, rollout_id: RolloutId, sites: Sequence[SiteName]) -> None:
        """Sites that came to the group of a rollout that is done. One that has something newer keeps it."""
        rollout = next(each for each in survey.rollouts if each.intent.id == rollout_id)
        left = {member.site for member in survey.members[rollout_id] if member.standing is Standing.LEFT}
        coming = tuple(site for site in sites if site not in left)
        if coming:
            intent = replace(rollout.intent, joined=(*rollout.intent.joined, *coming))
            await self._give(rollout, intent, coming, f"{', '.join(coming[:5])} came to the group")

    async def _give(self, rollout: Rollout, after: Intent, sites: Sequence[SiteName], why: str) -> None:
        """One commit with the files of these sites and the rollout's own. Who cannot have it is passed over, with
        the reason, and counts as failed."""
        desk, now = self.office.desk, self.office.clock.now()
        refused = await self._refused(after, sites)
        fitting = [site for site in sites if site not in refused]
        if refused:
            values = changed(rollout, now, refused={**rollout.refused, **refused})
            await self._put(values, [])
            rollout = values

        async def along() -> Sequence[Change]:
            async with desk.store.read() as reader:
                row = await reader.rollout(after.id)
            if row is None or row.state is not rollout.state or rollout_of(row).intent != rollout.intent:
                raise RolloutMoved(f"Rollout {after.id[:8]} has changed meanwhile.")
            return [Change(rollout_path(after.id), render_rollout(after))]

        if fitting:
            async with desk.store.read() as reader:
                resolved = await resolve(reader, request_of(after, fitting))
            await write_targets(resolved, after.id, desk, author=after.author, along=along)
        else:
            await self._note(after, along)
        await self._tell(after.id, why)

    async def _note(self, after: Intent, along: Along) -> None:
        """A commit of the rollout's file alone."""
        desk = self.office.desk

        async def decide(head: Commit | None) -> Sequence[Change]:
            if head is not None:
                await desk.index.follow(head)
            return await along()

        commit = await desk.git.commit(decide, message=f"rollout {after.id}", author=after.author)
        if commit is not None:
            await desk.index.follow(commit)

    async def _refused(self, intent: Intent, sites: Sequence[SiteName]) -> Mapping[SiteName, str]:
        """Who of these cannot be given the file, and why. Asked for all at once, as nearly always all can."""
        async with self.office.desk.store.read() as reader:
            if await _refusal(reader, intent, sites) is None:
                return {}
            found = {site: await _refusal(reader, intent, [site]) for site in sites}
        return {site: why for site, why in found.items() if why is not None}

    async def _tell(self, rollout_id: RolloutId, why: str) -> None:
        now = self.office.clock.now()

        async def write(tx: Transaction) -> None:
            row = await tx.rollout(rollout_id)
            if row is not None:
                after = changed(rollout_of(row), now, reason=why)
                await tx.put_rollouts([row_of(after)])
                await tx.append_events([rollout_event(after, now)])

        await self.office.desk.store.write(write)

    async def _step(self, rollout: Rollout, happening: RolloutHappening, reason: str) -> None:
        now = self.office.clock.now()
        after, event = stepped(changed(rollout, now), happening, Actor.CENTRAL, reason, now)
        await self._put(after, [event])
        log.info("rollout moved on", rollout=rollout.intent.id, state=after.state.value, why=reason)

    async def _put(self, rollout: Rollout, events: Sequence[NewEvent]) -> None:
        async def write(tx: Transaction) -> None:
            await tx.put_rollouts([row_of(rollout)])
            await tx.append_events(events)

        await self.office.desk.store.write(write)


def _is_worth_keeping(watched: float | None, kept: float | None) -> bool:
    if watched is None or kept is None:
        return watched != kept
    return watched - kept >= KEEP_SECONDS


async def _refusal(reader: Reader, intent: Intent, sites: Sequence[SiteName]) -> str | None:
    try:
        await present_by_site(reader, await resolve(reader, request_of(intent, sites)))
    except PermanentError as error:
        return str(error)
    return None
