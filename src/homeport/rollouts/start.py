"""Starts rollouts and records the operator's commands. The intent and the first wave's files are one commit; `loop`
does the rest."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from homeport.catalog.rollout import render_rollout, rollout_path, with_sites
from homeport.core.lifecycle.rollout import trigger_of
from homeport.core.model.caller import Caller
from homeport.core.model.deployment import Hold
from homeport.core.model.event import Deployment, Site
from homeport.core.model.rollout import EVERYBODY, Intent, Member, Rollout, RolloutRow, Size, Wave
from homeport.core.reconcile.holds import by_site, hold_on, hold_text
from homeport.core.rollout.advance import advance
from homeport.core.rollout.waves import check_sizes, next_waves
from homeport.core.update_values import RequestedValues, choose_profile
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.errors import Conflict, InvalidInput, NotFound, Problem
from homeport.fleet.central.apps import AppQuery
from homeport.fleet.central.deploy import Deployed, write_targets
from homeport.fleet.central.merging import merge_targets
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import DeployRequest, DeployTarget, Resolved, resolve
from homeport.fleet.shared.answers.suggestion import did_you_mean
from homeport.fleet.shared.named_sites import sites_by_name
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import SITES, WHOLE, Change, Proposal, Reader, SeenReader, SiteFilter, Transaction
from homeport.rollouts.rows import changed, new_rollout, rollout_of, row_of, stepped
from homeport.vocabulary import (
    ID_PREFIX_LENGTH_MIN,
    Actor,
    Commit,
    RolloutCommand,
    RolloutId,
    RolloutSiteStatus,
    RolloutState,
    RolloutTrigger,
    SiteName,
)

SITES_MAX: Final = 20_000
"""Maximum number of sites of one rollout: its file stays below a mebibyte."""

log = get_log("homeport.rollouts")


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    deploy: DeployRequest
    """Its targets are the named sites."""
    selector: Selector = ANYTHING
    waves: tuple[Size, ...] = ()
    bake_seconds: float = 0.0
    threshold_percent: int = 100


@dataclass(frozen=True, slots=True)
class PreparedRollout:
    """A rollout that is ready to start: nothing is written yet."""

    intent: Intent
    resolved: Resolved
    """For every site of the group."""
    members: tuple[Member, ...]

    @property
    def waves(self) -> Sequence[tuple[SiteName, ...]]:
        return next_waves(self.intent, self.members)


async def prepare_rollout(request: RolloutRequest, caller: Caller, central: CentralPlatform) -> PreparedRollout:
    """Validates everything, for every site of the group. Raises with nothing written."""
    problems = list(check_sizes(request.waves))
    if problems:
        raise InvalidInput(problems=problems)
    now = central.clock.now()
    async with central.git_writer.store.read() as reader:
        group = await _group(reader, request)
        targets = tuple(DeployTarget(site.name) for site in group)
        if any(target.nodes for target in request.deploy.targets):
            message = "Nodes cannot be named for single sites of a rollout; use placement for all of them."
            raise InvalidInput(problems=[Problem("sites", message)])
        resolved = await resolve(reader, replace(request.deploy, targets=targets))
        profile = choose_profile(resolved.app, request.deploy.requested.profile, None)
        resolved = replace(resolved, requested=replace(resolved.requested, profile=profile.id))
        git_writer = central.git_writer
        commit = await git_writer.index.indexed()
        merged = await merge_targets(reader, git_writer.git, commit, resolved, in_thread=git_writer.in_thread)
        present = merged.present
        holds = by_site(await reader.holds())
        created_at = _after_all(await reader.rollouts(name=resolved.name), now)
    intent = Intent(
        id=RolloutId(central.git_writer.ids.new()),
        name=resolved.name,
        category=resolved.record.category,
        app_name=resolved.record.app_name,
        version=resolved.app.version,
        profile=profile.id,
        created_at=created_at,
        author=caller.name,
        parameters=dict(resolved.requested.parameters),
        placement=resolved.requested.placement,
        policy=resolved.requested.policy,
        remove_images=resolved.requested.remove_images,
        keep_values=not resolved.requested.reset_values,
        sites=tuple(target.site for target in request.deploy.targets),
        selector=request.selector,
        waves=tuple(Wave(size) for size in request.waves or (EVERYBODY,)),
        bake_seconds=request.bake_seconds,
        threshold_percent=request.threshold_percent,
    )
    members = tuple(_waiting(site, present.get(site.name), holds.get(site.name, ()), central, now) for site in group)
    return PreparedRollout(intent, resolved, members)


def _waiting(
    site: Site, row: Deployment | None, holds: Sequence[Hold], central: CentralPlatform, now: datetime
) -> Member:
    hold = hold_on(holds, None if row is None else row.id, now)
    return Member(
        site.name,
        RolloutSiteStatus.WAITING,
        is_reachable=central.reachability.is_reachable(site, now),
        why="" if hold is None else hold_text(hold),
        is_held=hold is not None,
    )


async def start_rollout(request: RolloutRequest, caller: Caller, central: CentralPlatform) -> Deployed:
    """Returns when the intent and the first wave are pushed and visible."""
    prepared = await prepare_rollout(request, caller, central)
    intent = prepared.intent
    first = new_rollout(intent, Commit(""), central.clock.now())
    decision = advance(first, prepared.members)
    for number, sites in decision.waves:
        intent = with_sites(intent, number, sites)

    async def along() -> Sequence[Change]:
        return [Change(rollout_path(intent.id), render_rollout(intent))]

    targets = tuple(DeployTarget(site) for site in decision.sites)
    resolved = replace(prepared.resolved, targets=targets)
    deployed = await write_targets(resolved, intent.id, central.git_writer, author=caller.name, along=along)
    log.info("rollout started", rollout=intent.id, name=intent.name, sites=len(prepared.members), by=caller.name)
    return deployed


async def steer(text: str, word: RolloutCommand, caller: Caller, central: CentralPlatform) -> Rollout:
    """Pauses, resumes or aborts a rollout: the command is written to its file, and applies once that is pushed."""
    git_writer = central.git_writer
    async with git_writer.store.read() as reader:
        rollout_id = (await find_rollout(reader, text)).intent.id

    title = {RolloutCommand.RUNNING: "resume", RolloutCommand.PAUSED: "pause", RolloutCommand.ABORTED: "abort"}[word]

    async def decide(head: Commit | None) -> Proposal:
        async with git_writer.store.read() as reader:
            rollout = await find_rollout(reader, rollout_id)
        check_word(rollout, word)
        after = replace(rollout.intent, word=word)
        return Proposal([Change(rollout_path(rollout_id), render_rollout(after))], f"{title} rollout {rollout_id}")

    await git_writer.write(decide, author=caller.name)
    if word is RolloutCommand.RUNNING:
        await _start_again(rollout_id, caller, central)
    log.info("rollout command applied", rollout=rollout_id, word=word.value, by=caller.name)
    async with git_writer.store.read() as reader:
        return await find_rollout(reader, rollout_id)


def check_word(rollout: Rollout, word: RolloutCommand) -> None:
    """Raises Conflict where the command comes too late, or already holds."""
    state, name = rollout.state, f"{rollout.intent.name} {rollout.intent.version}"
    # A pause that was accepted holds, even if the rollout ended before it was in Git; later ones are refused.
    is_late = (word, state) == (RolloutCommand.PAUSED, RolloutState.DONE)
    starts_again = (word, state) == (RolloutCommand.RUNNING, RolloutState.STOPPED)
    if starts_again or (trigger_of(word, state) is not None and not is_late):
        return
    if state in (RolloutState.DONE, RolloutState.ABORTED, RolloutState.SUPERSEDED):
        raise Conflict(f"The rollout of {name} has ended: it is {state}.", hint="Deploy again to begin a new one.")
    if (word, state) == (RolloutCommand.PAUSED, RolloutState.STOPPED):
        raise Conflict(f"The rollout of {name} has stopped by itself.", hint="Resume it, or abort it.")
    raise Conflict(f"The rollout of {name} is {state} already.")


async def find_rollout(reader: SeenReader, text: str) -> Rollout:
    """By id, by a unique prefix of it, or by name: then the newest."""
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
    """The deploy request of the intent for these sites."""
    return DeployRequest(
        targets=tuple(DeployTarget(site) for site in sites),
        app=AppQuery(intent.category, intent.app_name, intent.version),
        name=intent.name,
        requested=RequestedValues(
            profile=intent.profile,
            parameters=intent.parameters,
            placement=intent.placement,
            policy=intent.policy,
            remove_images=intent.remove_images,
            reset_values=not intent.keep_values,
        ),
    )


def _after_all(rows: Sequence[RolloutRow], now: datetime) -> datetime:
    """Later than every other: the newest rollout of a name counts, even when the clock was set back."""
    return max([now, *(row.created_at + timedelta(milliseconds=1) for row in rows)])


async def _group(reader: Reader, request: RolloutRequest) -> list[Site]:
    """The named sites in their order, then those that the selector matches, by name."""
    named = [target.site for target in request.deploy.targets]
    selected = await _selected(reader, request.selector)
    if request.selector and not selected:
        message = f'"{request.selector}" matches no site. See  homeport sites list , and  homeport sites label .'
        raise InvalidInput(problems=[Problem("selector", message)])
    group = [*named, *sorted(selected.keys() - set(named))]
    if len(group) > SITES_MAX:
        message = f"{len(group)} sites are too many for one rollout: {SITES_MAX} are the most."
        raise InvalidInput(problems=[Problem("selector", message)])
    sites = {**selected, **await sites_by_name(reader, named)}
    unknown = next((name for name in named if name not in sites), None)
    if unknown is not None:
        every = [site.name for site in await reader.sites()]
        raise NotFound(f'There is no site "{unknown}".', hint=did_you_mean(unknown, every, "homeport sites list"))
    return [sites[name] for name in group]


async def _selected(reader: Reader, selector: Selector) -> dict[SiteName, Site]:
    if not selector:
        return {}
    return {site.name: site for site in (await reader.page(SITES, SiteFilter(selector=selector), WHOLE)).items}


async def _start_again(rollout_id: RolloutId, caller: Caller, central: CentralPlatform) -> None:
    """The file of a rollout that stopped because of failures says `running` all the time."""
    now = central.clock.now()

    async def write(tx: Transaction) -> None:
        row = await tx.rollout(rollout_id)
        if row is None or row.state is not RolloutState.STOPPED:
            return
        reason = f"resumed by {caller.name}"
        after, event = stepped(changed(rollout_of(row), now), RolloutTrigger.RESUMED, Actor.PERSON, reason, now)
        await tx.put_rollouts([row_of(replace(after, refused={}))])
        await tx.append_events([event])

    await central.git_writer.store.write(write)
