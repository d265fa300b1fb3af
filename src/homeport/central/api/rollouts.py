"""Rollouts: how they stand, and the operator's word to them. They are started by deploying."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from homeport.catalog.rollout import parse_bake, parse_size, parse_threshold
from homeport.central.parts import CentralParts
from homeport.core.durations import duration_text
from homeport.core.model.caller import Caller
from homeport.core.model.rollout import Member, Rollout
from homeport.core.rollout.standing import counts
from homeport.core.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput, NotAuthorized, NotFound, Problem
from homeport.fleet.resolve import DeployRequest
from homeport.fleet.rollout_rows import rollout_of
from homeport.fleet.rollout_view import RolloutView, view_rollouts
from homeport.fleet.rollouts import RolloutRequest, find_rollout, steer
from homeport.fleet.scope import seen_by
from homeport.serving.bodies.body import Body
from homeport.serving.bodies.deployments import Deploy
from homeport.serving.callers import allowed, check_sites
from homeport.vocabulary import RolloutState, RolloutWord, Standing

LISTED_MAX = 200
RolloutRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9-]+$",
        description="The id, a prefix of it that fits only one, or a name: then the newest rollout of it.",
    ),
]
RolloutReader = Annotated[Caller, Depends(allowed("rollouts.read"))]
Steerer = Annotated[Caller, Depends(allowed("rollouts.steer"))]


class WaveBody(Body):
    number: int
    size: str
    """How many sites have it in all once it has begun."""
    begun: bool
    sites: int
    counts: Mapping[str, int]
    """How many of its sites are installed, pending, failed, offline, held, or have left the rollout."""


class MemberBody(Body):
    site: str
    standing: str
    wave: int | None
    """None for a site that waits for its turn, or that came to the group later."""
    why: str


class RolloutBody(Body):
    id: str
    name: str
    app_name: str
    app_category: str
    app_version: str
    profile: str
    state: str
    note: str
    """Why it stands as it does, or what it waits for."""
    selector: str
    threshold: str
    bake: str
    bake_ends_at: datetime | None
    sites: int
    counts: Mapping[str, int]
    waves: Sequence[WaveBody]
    failing: Sequence[MemberBody]
    held: Sequence[MemberBody]
    """Sites that somebody holds, with the reason: they hold up nobody, and catch up when that ends."""
    created_at: datetime
    created_by: str
    updated_at: datetime


class RolloutDetailBody(RolloutBody):
    members: Sequence[MemberBody]


class RolloutsBody(Body):
    rollouts: Sequence[RolloutBody]


def rollouts_router(central: CentralParts) -> APIRouter:
    router = APIRouter(tags=["rollouts"])

    @router.get("/api/v1/rollouts", summary="List rollouts, the newest first")
    async def list_rollouts(
        caller: RolloutReader,
        state: RolloutState | None = None,
        name: Annotated[str | None, Query(max_length=200)] = None,
    ) -> RolloutsBody:
        async with seen_by(caller, central.store).read() as reader:
            rows = await reader.rollouts(None if state is None else [state], name=name)
            found = [rollout_of(row) for row in rows[:LISTED_MAX]]
            views = [_for(caller, view) for view in await view_rollouts(reader, found, central.office)]
        return RolloutsBody(rollouts=[_body(view) for view in views if view.members or not caller.sites])

    @router.get("/api/v1/rollouts/{rollout}", summary="Show one rollout with its sites", responses={404: {}, 409: {}})
    async def show_rollout(caller: RolloutReader, rollout: RolloutRef) -> RolloutDetailBody:
        return _detail(await _one(central, caller, rollout))

    @router.post("/api/v1/rollouts/{rollout}/pause", summary="Begin no further wave", responses={404: {}, 409: {}})
    async def pause_rollout(caller: Steerer, rollout: RolloutRef) -> RolloutDetailBody:
        return await _steered(central, caller, rollout, RolloutWord.PAUSED)

    @router.post("/api/v1/rollouts/{rollout}/resume", summary="Go on", responses={404: {}, 409: {}})
    async def resume_rollout(caller: Steerer, rollout: RolloutRef) -> RolloutDetailBody:
        """One that has stopped by itself looks at its sites again, and stops again where nothing was mended."""
        return await _steered(central, caller, rollout, RolloutWord.RUNNING)

    @router.post("/api/v1/rollouts/{rollout}/abort", summary="End it for good", responses={404: {}, 409: {}})
    async def abort_rollout(caller: Steerer, rollout: RolloutRef) -> RolloutDetailBody:
        """No further wave comes, and nobody who joins later gets it. What is deployed stays."""
        return await _steered(central, caller, rollout, RolloutWord.ABORTED)

    return router


def rollout_request(body: Deploy, request: DeployRequest, caller: Caller) -> RolloutRequest | None:
    """None for a plain deployment to the sites that are named."""
    if body.selector is None and not body.waves:
        for field in ("bake", "threshold"):
            if getattr(body, field) is not None:
                message = "needs waves, or a selector: a plain deployment reaches all its sites at once."
                raise InvalidInput(problems=[Problem(field, message)])
        if not request.targets:
            raise InvalidInput(problems=[Problem("sites", "Name at least one site, or give a selector.")])
        return None
    if body.selector is not None and caller.sites:
        raise NotAuthorized(
            f"A selector also reaches sites that come later, and {caller.name} is limited to some.",
            hint="Name the sites instead.",
        )
    if body.waves and body.selector is None and not request.targets:
        raise InvalidInput(problems=[Problem("sites", "Name at least one site, or give a selector.")])
    return RolloutRequest(
        deploy=request,
        selector=ANYTHING if body.selector is None else parse_selector(body.selector),
        waves=tuple(parse_size(size, field=f"waves[{number}].size") for number, size in enumerate(body.waves)),
        bake_seconds=0.0 if body.bake is None else parse_bake(body.bake),
        threshold_percent=100 if body.threshold is None else parse_threshold(body.threshold),
    )


async def _one(central: CentralParts, caller: Caller, text: str) -> RolloutView:
    async with seen_by(caller, central.store).read() as reader:
        found = await find_rollout(reader, text)
        view = (await view_rollouts(reader, [found], central.office))[0]
    if caller.sites and not view.members:
        raise NotFound(f'There is no rollout "{text}".', hint="List them:  homeport rollouts list")
    return _for(caller, view)


def _for(caller: Caller, view: RolloutView) -> RolloutView:
    """The note speaks of all sites, so only who may see all of them gets it."""
    return replace(view, note="") if caller.sites else view


async def _steered(central: CentralParts, caller: Caller, text: str, word: RolloutWord) -> RolloutDetailBody:
    await _check_reach(central, caller, text)
    rollout: Rollout = await steer(text, word, caller, central.office)
    return _detail(await _one(central, caller, rollout.intent.id))


async def _check_reach(central: CentralParts, caller: Caller, text: str) -> None:
    """Whoever is limited to some sites steers what concerns those alone."""
    if not caller.sites:
        return
    await _one(central, caller, text)
    async with central.store.read() as reader:
        found = await find_rollout(reader, text)
        view = (await view_rollouts(reader, [found], central.office))[0]
    check_sites(caller, [member.site for member in view.members])


def _detail(view: RolloutView) -> RolloutDetailBody:
    members = [_member(member) for member in view.members]
    return RolloutDetailBody(**_body(view).model_dump(), members=members)


def _body(view: RolloutView) -> RolloutBody:
    rollout, intent = view.rollout, view.rollout.intent
    return RolloutBody(
        id=intent.id,
        name=intent.name,
        app_name=intent.app_name,
        app_category=intent.category,
        app_version=intent.version,
        profile=intent.profile,
        state=rollout.state.value,
        note=view.note,
        selector=str(intent.selector),
        threshold=f"{intent.threshold_percent}%",
        bake=duration_text(intent.bake_seconds),
        bake_ends_at=view.bake_ends_at,
        sites=len(view.members),
        counts=_counts(view.members),
        waves=[_wave(view, number) for number in range(len(intent.waves))],
        failing=[_member(member) for member in view.members if member.standing is Standing.FAILED],
        held=[_member(member) for member in view.members if _waits_for_release(member)],
        created_at=intent.created_at,
        created_by=intent.author,
        updated_at=rollout.updated_at,
    )


def _wave(view: RolloutView, number: int) -> WaveBody:
    wave = view.rollout.intent.waves[number]
    members = [member for member in view.members if member.wave == number]
    return WaveBody(
        number=number + 1,
        size=str(wave.size),
        begun=wave.sites is not None,
        sites=len(members),
        counts=_counts(members),
    )


def _counts(members: Sequence[Member]) -> dict[str, int]:
    return {standing.value: count for standing, count in counts(members).items()}


def _waits_for_release(member: Member) -> bool:
    return member.standing is Standing.HELD or (member.standing is Standing.WAITING and member.is_held)


def _member(member: Member) -> MemberBody:
    wave = None if member.wave is None else member.wave + 1
    return MemberBody(site=member.site, standing=member.standing.value, wave=wave, why=member.why)
