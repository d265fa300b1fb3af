"""Starts rollouts and passes on the operator's word. The intent and the first wave's files are one commit; what comes
after is the loop's (`rollout_loop`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from homeport.catalog.rollout import render_rollout, rollout_path, with_sites
from homeport.core.lifecycle.rollout import happening_of
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, Site
from homeport.core.model.rollout import EVERYBODY, Intent, Member, Rollout, RolloutRow, Size, Wave
from homeport.core.reconcile.holds import by_site, hold_on, hold_text
from homeport.core.rollout.advance import advance
from homeport.core.rollout.waves import check_sizes, next_waves
from homeport.core.selectors import ANYTHING, Selector
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.apps import AppQuery
from homeport.fleet.deploy import Deployed, Desk, write_targets
from homeport.fleet.overview import Watchfulness
from homeport.fleet.resolve import DeployRequest, Resolved, Target, present_by_site, resolve
from homeport.fleet.rollout_rows import changed, new_rollout, rollout_of, row_of, stepped
from homeport.fleet.sightings import Sightings
from homeport.fleet.suggestion import did_you_mean
from homeport.ports import Change, Clock, Reader, Transaction
from homeport.vocabulary import (
    ID_PREFIX_LENGTH_MIN,
    Actor,
    Commit,
    RolloutHappening,
    RolloutId,
    RolloutState,
    RolloutWord,
    SiteName,
    Standing,
)

SITES_MAX: Final = 20_000
"""How many sites one rollout's file can name: it stays below a mebibyte."""

log = structlog.get_logger("homeport.fleet.rollouts")


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    deploy: DeployRequest
    """Its targets are the sites that were named."""
    selector: Selector = ANYTHING
    waves: tuple[Size, ...] = ()
    bake_seconds: float = 0.0
    threshold_percent: int = 100


@dataclass(frozen=True, slots=True)
class Prepared:
    """A rollout that could begin: nothing is written yet."""

    intent: Intent
    resolved: Resolved
    """For every site of the group."""
    members: tuple[Member, ...]

    @property
    def waves(self) -> Sequence[tuple[SiteName, ...]]:
        return next_waves(self.intent, self.members)


@dataclass(frozen=True, slots=True)
class Office:
    """What starting and steering rollouts needs besides the desk."""

    desk: Desk
    clock: Clock
    watchfulness: Watchfulness
    sightings: Sightings = field(default_factory=Sightings)


async def prepare_rollout(request: RolloutRequest, caller: Caller, office: Office) -> Prepared:
    """Checks everything, for every site of the group. Raises with nothing written."""
    problems = list(check_sizes(request.waves))
    if problems:
        raise InvalidInput(problems=problems)
    now = office.clock.now()
    async with office.desk.store.read() as reader:
        group = await _group(reader, request)
        targets = tuple(Target(site.name) for site in group)
        if any(target.nodes for target in request.deploy.targets):
            message = "Nodes cannot be named for single sites of a rollout; use placement for all of them."
            raise InvalidInput(problems=[Problem("sites", message)])
        resolved = await resolve(reader, replace(request.deploy, targets=targets))
        present = await present_by_site(reader, resolved)
        holds = by_site(await reader.holds())
        created_at = _after_all(await reader.rollouts(name=resolved.name), now)
    intent = Intent(
        id=RolloutId(office.desk.ids.new()),
        name=resolved.name,
        category=resolved.record.category,
        app_name=resolved.record.app_name,
        version=resolved.app.version,
        profile=resolved.profile.id,
        created_at=created_at,
        author=caller.name,
        parameters=dict(request.deploy.parameters),
        placement=request.deploy.placement,
        policy=request.deploy.policy,
        remove_images=request.deploy.remove_images,
        sites=tuple(target.site for target in request.deploy.targets),
        selector=request.selector,
        waves=tuple(Wave(size) for size in request.waves or (EVERYBODY,)),
        bake_seconds=request.bake_seconds,
        threshold_percent=request.threshold_percent,
    )
    members = tuple(_waiting(site, present.get(site.name), holds.get(site.name, ()), office, now) for site in group)
    return Prepared(intent, resolved, members)


def _waiting(site: Site, row: Deployment | None, holds: Sequence[Hold], office: Office, now: datetime) -> Member:
    hold = hold_on(holds, None if row is None else row.id, now)
    return Member(
        site.name,
        Standing.WAITING,
        is_reachable=office.watchfulness.is_reachable(site, now),
        why="" if hold is None else hold_text(hold),
        is_held=hold is not None,
    )


async def start_rollout(request: RolloutRequest, caller: Caller, office: Office) -> Deployed:
    """Returns when the intent and the first wave are pushed and shown."""
    prepared = await prepare_rollout(request, caller, office)
    intent = prepared.intent
    first = new_rollout(intent, Commit(""), office.clock.now())
    decision = advance(first, prepared.members)
    for number, sites in decision.waves:
        intent = with_sites(intent, number, sites)

    async def along() -> Sequence[Change]:
        return [Change(rollout_path(intent.id), render_rollout(intent))]

    targets = tuple(Target(site) for site in decision.sites)
    resolved = replace(prepared.resolved, targets=targets)
    deployed = await write_targets(resolved, intent.id, office.desk, author=caller.name, along=along)
    log.info("rollout started", rollout=intent.id, name=intent.name, sites=len(prepared.members), by=caller.name)
    return deployed


async def steer(text: str, word: RolloutWord, caller: Caller, office: Office) -> Rollout:
    """Pauses, resumes or aborts a rollout: the word goes into its file, and into effect when that is pushed."""
    desk = office.desk
    async with desk.store.read() as reader:
        rollout_id = (await find_rollout(reader, text)).intent.id

    async def decide(head: Commit | None) -> Sequence[Change]:
        if head is not None:
            await desk.index.follow(head)
        async with desk.store.read() as reader:
            rollout = await find_rollout(reader, rollout_id)
        check_word(rollout, word)
        after = replace(rollout.intent, word=word)
        return [Change(rollout_path(rollout_id), render_rollout(after))]

    title = {RolloutWord.RUNNING: "resume", RolloutWord.PAUSED: "pause", RolloutWord.ABORTED: "abort"}[word]
    commit = await desk.git.commit(decide, message=f"{title} rollout {rollout_id}", author=caller.name)
    if commit is not None:
        await desk.index.follow(commit)
    if word is RolloutWord.RUNNING:
        await _start_again(rollout_id, caller, office)
    log.info("rollout steered", rollout=rollout_id, word=word.value, by=caller.name)
    async with desk.store.read() as reader:
        return await find_rollout(reader, rollout_id)


def check_word(rollout: Rollout, word: RolloutWord) -> None:
    """Raises Conflict where the word comes too late, or says nothing new."""
    state, name = rollout.state, f"{rollout.intent.name} {rollout.intent.version}"
    if happening_of(word, state) is not None or (word, state) == (RolloutWord.RUNNING, RolloutState.STOPPED):
        return
    if state in (RolloutState.DONE, RolloutState.ABORTED, RolloutState.SUPERSEDED):
        raise Conflict(f"The rollout of {name} has ended: it is {state}.", hint="Deploy again to begin a new one.")
    if (word, state) == (RolloutWord.PAUSED, RolloutState.STOPPED):
        raise Conflict(f"The rollout of {name} has stopped by itself.", hint="Resume it, or abort it.")
    raise Conflict(f"The rollout of {name} is {state} already.")


async def find_rollout(reader: Reader, text: str) -> Rollout:
    """By id, by a prefix of it that fits only one, or by name: then the newest."""
    row = await reader.rollout(RolloutId(text))
    if row is not None:
        return rollout_of(row)
    named = await reader.rollouts(name=text)
    if named:
        return rollout_of(named[0])
    fitting = [row for row in await reader.rollouts() if row.id.startswith(text)]
    if not fitting or len(text) < ID_PREFIX_LENGTH_MIN:
        raise NotFound(f'There is no rollout "{text}".', hint="List them:  homeport rollouts list")
    if len(fitting) > 1:
        listed = ", ".join(sorted(row.id for row in fitting)[:5])
        raise Conflict(f'"{text}" fits several rollouts: {listed}.', hint="Give more characters of the id.")
    return rollout_of(fitting[0])


def request_of(intent: Intent, sites: Sequence[SiteName]) -> DeployRequest:
    """What the intent asks for at these sites."""
    return DeployRequest(
        targets=tuple(Target(site) for site in sites),
        app=AppQuery(intent.category, intent.app_name, intent.version),
        profile=intent.profile,
        name=intent.name,
        parameters=intent.parameters,
        placement=intent.placement,
        policy=intent.policy,
        remove_images=intent.remove_images,
    )


def _after_all(rows: Sequence[RolloutRow], now: datetime) -> datetime:
    """The newest rollout of a name counts, and a clock that was set back must not make it the oldest."""
    return max([now, *(row.created_at + timedelta(milliseconds=1) for row in rows)])


async def _group(reader: Reader, request: RolloutRequest) -> list[Site]:
    """The named sites in their order, then those that the selector matches, by name."""
    every = {site.name: site for site in await reader.sites()}
    named = [target.site for target in request.deploy.targets]
    matching = [
        site.name
        for site in every.values()
        if request.selector and request.selector.unmet(site.labels) is None and site.name not in named
    ]
    if (
        request.selector
        and not matching
        and not any(site in every and request.selector.unmet(every[site].labels) is None for site in named)
    ):
        message = f'"{request.selector}" matches no site. See  homeport sites list , and  homeport sites label .'
        raise InvalidInput(problems=[Problem("selector", message)])
    if len(named) + len(matching) > SITES_MAX:
        message = f"{len(named) + len(matching)} sites are too many for one rollout: {SITES_MAX} are the most."
        raise InvalidInput(problems=[Problem("selector", message)])
    unknown = next((name for name in named if name not in every), None)
    if unknown is not None:
        raise NotFound(
            f'There is no site "{unknown}".', hint=did_you_mean(unknown, list(every), "homeport sites list")
        )
    return [every[name] for name in [*named, *matching]]


async def _start_again(rollout_id: RolloutId, caller: Caller, office: Office) -> None:
    """One that stopped by itself has the word `running` in Git all the time."""
    now = office.clock.now()

    async def write(tx: Transaction) -> None:
        row = await tx.rollout(rollout_id)
        if row is None or row.state is not RolloutState.STOPPED:
            return
        reason = f"resumed by {caller.name}"
        after, event = stepped(changed(rollout_of(row), now), RolloutHappening.RESUMED, Actor.PERSON, reason, now)
        await tx.put_rollouts([row_of(replace(after, refused={}))])
        await tx.append_events([event])

    await office.desk.store.write(write)
