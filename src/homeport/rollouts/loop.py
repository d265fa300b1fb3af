"""Advances rollouts: looks at every site of each, decides, and writes the next wave to Git.

Level-based: each round starts from Git and the tables, so a restart, a lost round or a lost race costs nothing. Only
the bake time of a wave (`watched_seconds`) and the files that could not be written are stored in addition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Final

import anyio

from homeport.catalog.rollout import render_rollout, rollout_path, with_sites
from homeport.core.model.event import NewEvent
from homeport.core.model.rollout import Intent, Rollout
from homeport.core.rollout.advance import RolloutDecision, RolloutMove, advance
from homeport.core.rollout.bake import watched_after
from homeport.core.rollout.clock_steps import ClockSteps, listen
from homeport.core.rollout.group import CLAIMING, latecomers, superseded_by
from homeport.errors import Conflict, PermanentError, TransientError
from homeport.fleet.central.deploy import Along, GitWriter, write_targets
from homeport.fleet.central.merging import merge_targets
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import resolve
from homeport.fleet.shared.overview import Reachability
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Change, Proposal, Reader, Transaction
from homeport.rollouts.rows import changed, rollout_event, rollout_of, row_of, stepped
from homeport.rollouts.start import request_of
from homeport.rollouts.survey import Survey, look
from homeport.vocabulary import Actor, Commit, RolloutId, RolloutSiteStatus, RolloutState, RolloutTrigger, SiteName

PAUSE_SECONDS: Final = 0.25
"""Minimum pause between two rounds: a round looks at every site of a rollout."""

KEEP_SECONDS: Final = 5.0
"""How much bake time a crash of central may lose. Storing each round would be a write every quarter of a second."""

QUIET_SECONDS: Final = 60.0
"""The interval of rounds while there is no rollout. A new one comes with an event."""

log = get_log("homeport.rollouts")


class RolloutMoved(Conflict):
    """The rollout has changed while its next wave was being written."""

    code = "rollout-moved"


@dataclass(slots=True)
class RolloutLoop:
    central: CentralPlatform
    period_seconds: float
    """The interval of rounds without events: checks whether the bake time is over, and which sites are offline."""
    _listening: ClockSteps = field(init=False)
    _seen_event: int = 0
    _next_full: float = 0.0
    _has_any: bool = True
    _watches: dict[RolloutId, tuple[float, float]] = field(default_factory=dict)
    """For each rollout whose newest wave is being watched: its bake time so far, and the time of the last round."""

    def __post_init__(self) -> None:
        self._listening = listen(None, self.central.clock.now(), self.central.clock.monotonic())

    async def due(self) -> None:
        """Waits for an event or the end of the period."""
        with anyio.move_on_after(self.period_seconds if self._has_any else QUIET_SECONDS):
            await self.central.git_writer.store.wait_for_event(self._seen_event)

    async def round(self) -> None:
        store, clock = self.central.git_writer.store, self.central.clock
        async with store.read() as reader:
            self._seen_event = await reader.last_event_id()
            is_busy = bool(await reader.rollouts([RolloutState.RUNNING]))
        if is_busy or clock.monotonic() >= self._next_full:
            self._next_full = clock.monotonic() + self.period_seconds
            await self.tend()

    async def tend(self) -> None:
        """One round over everything. A rollout that fails is left for the next round and does not block the
        others."""
        async with self.central.git_writer.store.read() as reader:
            rows = await reader.rollouts(CLAIMING)
        self._has_any = bool(rows)
        for name in sorted({row.name for row in rows}):
            try:
                await self._tend_name(name)
            except (TransientError, PermanentError) as error:
                log.warning("rollout step failed, will retry", name=name, why=str(error))

    async def _tend_name(self, name: str) -> None:
        git_writer, now = self.central.git_writer, self.central.clock.now()
        async with git_writer.store.read() as reader:
            survey = await look(
                reader,
                git_writer.git,
                name,
                reachability=self._watchfulness(),
                sightings=self.central.sightings,
                clock=self.central.clock,
            )
        for rollout in survey.rollouts:
            newer = superseded_by(rollout, survey.rollouts, survey.sites) if rollout.state in CLAIMING else None
            if newer is not None:
                reason = f"rollout {newer.intent.id[:8]} of {newer.intent.version} has taken its sites over"
                await self._step(rollout, RolloutTrigger.SUPERSEDED, reason)
            elif rollout.state is RolloutState.RUNNING:
                await self._move(rollout, survey, now)
        for rollout_id, sites in latecomers(survey.rollouts, survey.sites).items():
            await self._welcome(survey, rollout_id, sites)

    def _watchfulness(self) -> Reachability:
        """After a start or a clock change, no site counts as offline before it had the time to connect."""
        self._listening = listen(self._listening, self.central.clock.now(), self.central.clock.monotonic())
        return replace(self.central.reachability, listening_since=self._listening.since)

    async def _move(self, rollout: Rollout, survey: Survey, now: datetime) -> None:
        watched = self._watched(rollout)
        decision = advance(replace(rollout, watched_seconds=watched), survey.members[rollout.intent.id])
        match decision.move:
            case RolloutMove.STOP:
                await self._step(rollout, RolloutTrigger.BROKE, decision.why)
            case RolloutMove.FINISH:
                await self._step(rollout, RolloutTrigger.REACHED_ALL, decision.why)
            case RolloutMove.GIVE:
                await self._give_wave(rollout, decision)
            case RolloutMove.WAIT if _is_worth_keeping(decision.watched_seconds, rollout.watched_seconds):
                await self._put(changed(rollout, now, watched_seconds=decision.watched_seconds), [])
            case RolloutMove.WAIT:
                pass

    def _watched(self, rollout: Rollout) -> float | None:
        """The bake time of its newest wave, up to this round."""
        rollout_id, moment = rollout.intent.id, self.central.clock.monotonic()
        watch = self._watches.pop(rollout_id, None)
        if rollout.watched_seconds is None:
            return None
        seconds, last_look = (rollout.watched_seconds, None) if watch is None else watch
        step = None if last_look is None else moment - last_look
        seconds = watched_after(seconds, step, round_seconds=self.period_seconds)
        self._watches[rollout_id] = seconds, moment
        return seconds

    async def _give_wave(self, rollout: Rollout, decision: RolloutDecision) -> None:
        intent = rollout.intent
        for number, sites in decision.waves:
            intent = with_sites(intent, number, sites)
        await self._give(rollout, intent, decision.sites, decision.why)

    async def _welcome(self, survey: Survey, rollout_id: RolloutId, sites: Sequence[SiteName]) -> None:
        """Adds sites that joined the group of a rollout that is done. One that has something newer keeps it."""
        rollout = next(each for each in survey.rollouts if each.intent.id == rollout_id)
        left = {member.site for member in survey.members[rollout_id] if member.standing is RolloutSiteStatus.LEFT}
        coming = tuple(site for site in sites if site not in left)
        if coming:
            intent = replace(rollout.intent, joined=(*rollout.intent.joined, *coming))
            await self._give(rollout, intent, coming, f"{', '.join(coming[:5])} came to the group")

    async def _give(self, rollout: Rollout, after: Intent, sites: Sequence[SiteName], why: str) -> None:
        """One commit with the files of these sites and the rollout's own. Sites that cannot be given the release are
        skipped with the reason, and count as failed."""
        git_writer, now = self.central.git_writer, self.central.clock.now()
        refused = await self._refused(after, sites)
        fitting = [site for site in sites if site not in refused]
        if refused:
            values = changed(rollout, now, refused={**rollout.refused, **refused})
            await self._put(values, [])
            rollout = values

        async def along() -> Sequence[Change]:
            async with git_writer.store.read() as reader:
                row = await reader.rollout(after.id)
            if row is None or row.state is not rollout.state or rollout_of(row).intent != rollout.intent:
                raise RolloutMoved(f"Rollout {after.id[:8]} has changed meanwhile.")
            return [Change(rollout_path(after.id), render_rollout(after))]

        if fitting:
            async with git_writer.store.read() as reader:
                resolved = await resolve(reader, request_of(after, fitting))
            await write_targets(resolved, after.id, git_writer, author=after.author, along=along)
        else:
            await self._note(after, along)
        await self._tell(after.id, why)

    async def _note(self, after: Intent, along: Along) -> None:
        """A commit of the rollout's file alone."""

        async def decide(head: Commit | None) -> Proposal:
            return Proposal(await along(), f"rollout {after.id}")

        await self.central.git_writer.write(decide, author=after.author)

    async def _refused(self, intent: Intent, sites: Sequence[SiteName]) -> Mapping[SiteName, str]:
        """The sites that cannot be given the file, and why. Checked for all at once, as nearly always all can."""
        git_writer = self.central.git_writer
        commit = await git_writer.index.indexed()
        async with git_writer.store.read() as reader:
            if await _refusal(reader, git_writer, commit, intent, sites) is None:
                return {}
            found = {site: await _refusal(reader, git_writer, commit, intent, [site]) for site in sites}
        return {site: why for site, why in found.items() if why is not None}

    async def _tell(self, rollout_id: RolloutId, why: str) -> None:
        now = self.central.clock.now()

        async def write(tx: Transaction) -> None:
            row = await tx.rollout(rollout_id)
            if row is not None:
                after = changed(rollout_of(row), now, reason=why)
                await tx.put_rollouts([row_of(after)])
                await tx.append_events([rollout_event(after, now)])

        await self.central.git_writer.store.write(write)

    async def _step(self, rollout: Rollout, trigger: RolloutTrigger, reason: str) -> None:
        now = self.central.clock.now()
        after, event = stepped(changed(rollout, now), trigger, Actor.CENTRAL, reason, now)
        await self._put(after, [event])
        log.info("rollout advanced", rollout=rollout.intent.id, state=after.state.value, why=reason)

    async def _put(self, rollout: Rollout, events: Sequence[NewEvent]) -> None:
        async def write(tx: Transaction) -> None:
            await tx.put_rollouts([row_of(rollout)])
            await tx.append_events(events)

        await self.central.git_writer.store.write(write)


def _is_worth_keeping(watched: float | None, kept: float | None) -> bool:
    if watched is None or kept is None:
        return watched != kept
    return watched - kept >= KEEP_SECONDS


async def _refusal(
    reader: Reader, git_writer: GitWriter, commit: Commit | None, intent: Intent, sites: Sequence[SiteName]
) -> str | None:
    try:
        resolved = await resolve(reader, request_of(intent, sites))
        await merge_targets(reader, git_writer.git, commit, resolved, in_thread=git_writer.in_thread)
    except PermanentError as error:
        return str(error)
    return None
