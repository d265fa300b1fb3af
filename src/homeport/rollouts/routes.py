"""Rollouts: their status, and the operator's commands. They are started by deploying."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final

from fastapi import Depends, Path, Query, Response

from homeport.catalog.rollout import parse_bake, parse_size, parse_threshold
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.core.model.rollout import Member, Rollout
from homeport.core.rollout.standing import counts
from homeport.core.values.durations import duration_text
from homeport.core.values.selectors import ANYTHING, parse_selector
from homeport.errors import InvalidInput, NotAuthorized, NotFound, Problem
from homeport.fleet.central.platform import CentralPlatform
from homeport.fleet.central.resolve import DeployRequest
from homeport.fleet.shared.scope import seen_by
from homeport.ports import ROLLOUTS, RolloutFilter
from homeport.rollouts.rows import readable
from homeport.rollouts.start import RolloutRequest, find_rollout, steer
from homeport.rollouts.view import RolloutView, view_rollouts
from homeport.serving.bodies.body import Body, PageBody
from homeport.serving.bodies.deployments import Deploy
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf, check_sites
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router
from homeport.vocabulary import RolloutCommand, RolloutSiteStatus, RolloutState

RolloutRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9-]+$",
        description="The id, a prefix of it that fits only one, or a name: then the newest rollout of it.",
    ),
]


class WaveBody(Body):
    number: int
    size: str
    """How many sites have it in total once the wave has begun."""
    begun: bool
    sites: int
    counts: Mapping[str, int]
    """How many of its sites are installed, pending, failed, offline, held, or have left the rollout."""


class MemberBody(Body):
    site: str
    standing: str
    wave: int | None
    """None for a site that waits for its turn, or that joined the group later."""
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
    """Why it is in this state, or what it waits for."""
    selector: str
    threshold: str
    bake: str
    bake_ends_at: datetime | None
    sites: int
    counts: Mapping[str, int]
    waves: Sequence[WaveBody]
    failing: Sequence[MemberBody]
    held: Sequence[MemberBody]
    """Sites on hold, with the reason: they do not block the rollout, and catch up when the hold ends."""
    created_at: datetime
    created_by: str
    updated_at: datetime


class RolloutDetailBody(RolloutBody):
    members: Sequence[MemberBody]


class RolloutsBody(PageBody):
    rollouts: Sequence[RolloutBody]


_READ: Final = Action("rollouts.read", Level.VIEWER, Scope.SEEN, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/rollouts"): _READ,
    ("GET", "/api/v1/rollouts/{rollout}"): _READ,
    ("POST", "/api/v1/rollouts/{rollout}/pause"): Action("rollouts.pause", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/rollouts/{rollout}/resume"): Action("rollouts.resume", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
    ("POST", "/api/v1/rollouts/{rollout}/abort"): Action("rollouts.abort", Level.OPERATOR, Scope.SEEN, Audit.WAIT),
}
# fmt: on


def rollouts_routes(central: CentralPlatform) -> Routes:
    router = Router(tags=["rollouts"])

    @router.get("/api/v1/rollouts", summary="List rollouts, the newest first", response_model=RolloutsBody)
    async def list_rollouts(
        caller: CallerOf,
        page: Annotated[PageRequest, Depends(asked(ROLLOUTS, RolloutBody))],
        state: RolloutState | None = None,
        name: Annotated[str | None, Query(max_length=200)] = None,
        contains: Annotated[
            str | None,
            Query(max_length=200, description="Only those whose name contains this text; case is ignored."),
        ] = None,
    ) -> Response:
        """For callers limited to some sites, a page may have fewer items than the limit."""
        states = None if state is None else frozenset({state})
        where = RolloutFilter(states=states, name=name, contains=contains)
        async with seen_by(caller, central.store).read() as reader:
            found = await reader.page(ROLLOUTS, where, page.cut)
            views = await view_rollouts(reader, readable(found.items), central)
        seen = [_for(caller, view) for view in views if view.members or not caller.sites]
        return page.answer("rollouts", [_body(view) for view in seen], found.next)

    @router.get("/api/v1/rollouts/{rollout}", summary="Show one rollout with its sites", responses={404: {}, 409: {}})
    async def show_rollout(caller: CallerOf, rollout: RolloutRef) -> RolloutDetailBody:
        return _detail(await _one(central, caller, rollout))

    @router.post("/api/v1/rollouts/{rollout}/pause", summary="Pause a rollout", responses={404: {}, 409: {}})
    async def pause_rollout(caller: CallerOf, rollout: RolloutRef) -> RolloutDetailBody:
        return await _steered(central, caller, rollout, RolloutCommand.PAUSED)

    @router.post("/api/v1/rollouts/{rollout}/resume", summary="Resume a rollout", responses={404: {}, 409: {}})
    async def resume_rollout(caller: CallerOf, rollout: RolloutRef) -> RolloutDetailBody:
        """A rollout that stopped because of failures checks its sites again, and stops again unless the cause was
        fixed."""
        return await _steered(central, caller, rollout, RolloutCommand.RUNNING)

    @router.post(
        "/api/v1/rollouts/{rollout}/abort", summary="Cancel it; it cannot be resumed", responses={404: {}, 409: {}}
    )
    async def abort_rollout(caller: CallerOf, rollout: RolloutRef) -> RolloutDetailBody:
        """No further wave begins, and sites that join later do not get it. What is deployed stays."""
        return await _steered(central, caller, rollout, RolloutCommand.ABORTED)

    return Routes(router, ACTIONS)


def rollout_request(body: Deploy, request: DeployRequest, caller: Caller) -> RolloutRequest | None:
    """None for a plain deployment to the named sites."""
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


async def _one(central: CentralPlatform, caller: Caller, text: str) -> RolloutView:
    async with seen_by(caller, central.store).read() as reader:
        found = await find_rollout(reader, text)
        view = (await view_rollouts(reader, [found], central))[0]
    if caller.sites and not view.members:
        raise NotFound(f'There is no rollout "{text}".', hint="List them:  homeport rollouts list")
    return _for(caller, view)


def _for(caller: Caller, view: RolloutView) -> RolloutView:
    """The note may mention any site, so only callers who may see all of them get it."""
    return replace(view, note="") if caller.sites else view


async def _steered(central: CentralPlatform, caller: Caller, text: str, word: RolloutCommand) -> RolloutDetailBody:
    await _check_reach(central, caller, text)
    rollout: Rollout = await steer(text, word, caller, central)
    return _detail(await _one(central, caller, rollout.intent.id))


async def _check_reach(central: CentralPlatform, caller: Caller, text: str) -> None:
    """Callers limited to some sites may only steer rollouts that concern those alone."""
    if not caller.sites:
        return
    await _one(central, caller, text)
    async with central.store.read() as reader:
        found = await find_rollout(reader, text)
        view = (await view_rollouts(reader, [found], central))[0]
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
        failing=[_member(member) for member in view.members if member.standing is RolloutSiteStatus.FAILED],
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
    return member.standing is RolloutSiteStatus.HELD or (
        member.standing is RolloutSiteStatus.WAITING and member.is_held
    )


def _member(member: Member) -> MemberBody:
    wave = None if member.wave is None else member.wave + 1
    return MemberBody(site=member.site, standing=member.standing.value, wave=wave, why=member.why)
