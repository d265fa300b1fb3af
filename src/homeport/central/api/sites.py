"""How sites reach central: they join, report, and wait for changes of the repository. They connect outwards; central
never connects to them."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import Body as FromBody
from fastapi import Path, Query, Request, Response
from pydantic import StringConstraints

from homeport.central.parts import CentralParts
from homeport.central.site_link import answer_call, welcome
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.protocol import FEATURE_LENGTH_MAX, FEATURES_MAX, FIRST, VERSION_MAX, PeerProtocol
from homeport.fleet.central.labels import label_site
from homeport.fleet.central.site_removal import remove_site
from homeport.fleet.shared.overview import view_sites
from homeport.ports import Ahead, Lineage, Outgoing
from homeport.serving.bodies.fleet import LabelSite, RemovedSiteBody, SiteBody
from homeport.serving.bodies.reports import (
    AheadBody,
    JoinedBody,
    JoinSite,
    ReportedBody,
    Reports,
    RolledBackBody,
    SetAsideBody,
)
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.read import SSE_RESPONSES
from homeport.serving.routing import Router
from homeport.serving.server.run import Stopping
from homeport.serving.server.sse import EventStream, frame
from homeport.serving.to_bodies import site_body
from homeport.vocabulary import SITE_NAME_PATTERN, NodeId, SiteName
from homeport.wire.reports import encode_rolled_back
from homeport.wire.site_messages import encode

SiteRef = Annotated[str, Path(pattern=SITE_NAME_PATTERN, description="Small letters, digits and dashes.")]
LatestStarts = Annotated[
    list[Annotated[str, StringConstraints(max_length=64)]],
    Query(max_length=100, description="Names of the latest starts of the site, the present one last."),
]
ReportingStart = Annotated[
    str, Query(max_length=64, description="The start of the site that sends this, as in its join; none is compared.")
]
SpokenVersion = Annotated[
    int, Query(ge=FIRST, le=VERSION_MAX, description="Of the messages that the site speaks; the first when left out.")
]
SpokenFeatures = Annotated[
    list[Annotated[str, StringConstraints(max_length=FEATURE_LENGTH_MAX)]],
    Query(max_length=FEATURES_MAX, description="What the site understands beyond the first release."),
]
LastGiven = Annotated[int, Query(ge=0, description="The last report that the site had given out when it started.")]


_REPORT: Final = Action("sites.report", Level.MACHINE, Scope.SITE, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("PUT", "/api/v1/sites/{site}"): Action("sites.join", Level.MACHINE, Scope.SITE, Audit.NONE),
    # a label decides what a site gets
    ("PATCH", "/api/v1/sites/{site}"): Action("sites.label", Level.OPERATOR, Scope.SITE, Audit.WAIT),
    ("DELETE", "/api/v1/sites/{site}"): Action("sites.remove", Level.ADMIN, Scope.SITE, Audit.WAIT),
    ("POST", "/api/v1/sites/{site}/reports"): _REPORT,
    ("POST", "/api/v1/sites/{site}/calls"): _REPORT,
    ("POST", "/api/v1/sites/{site}/answers/{question}"): _REPORT,
    ("GET", "/api/v1/sites/{site}/watch"): Action("sites.watch", Level.MACHINE, Scope.SITE, Audit.NONE),
}
# fmt: on


def _keep_sites(router: Router, central: CentralParts) -> None:
    @router.patch("/api/v1/sites/{site}", summary="Label a site", responses={404: {}})
    async def label(caller: CallerOf, site: SiteRef, body: LabelSite) -> SiteBody:
        """Changes the site's marker in Git. The releases of its new group are then deployed there."""
        found = await label_site(site, body.labels, caller, central.git_writer)
        async with central.store.read() as reader:
            (view,) = await view_sites(reader, [found], central.reachability, central.clock.now())
        return site_body(view)

    @router.delete(
        "/api/v1/sites/{site}",
        summary="Remove a site; its workloads keep running",
        responses={404: {}, 409: {}},
    )
    async def remove(
        caller: CallerOf,
        site: SiteRef,
        force: Annotated[
            bool, Query(description="Also where something is deployed, or the site is in reach.")
        ] = False,
    ) -> RemovedSiteBody:
        """Its identity is removed with it: to come back, it has to join again."""

        async def revoke(name: SiteName) -> bool:
            removed = await central.registrar.revoke(name, caller)
            if removed is not None:
                central.authenticator.end(removed.spiffe_id)
            return removed is not None

        had_identity = await remove_site(
            site,
            force=force,
            caller=caller,
            git_writer=central.git_writer,
            clock=central.clock,
            reachability=central.reachability,
            revoke=revoke,
            forgetting=[part.forget_site for part in central.brought if part.forget_site is not None],
        )
        return RemovedSiteBody(name=site, identity_removed=had_identity)


def _join_sites(router: Router, central: CentralParts) -> None:
    @router.put("/api/v1/sites/{site}", summary="Join, or join again after a restart", responses={409: {}})
    async def join_site(  # noqa: PLR0917 - its query
        caller: CallerOf,
        site: SiteRef,
        body: JoinSite,
        starts: LatestStarts = [],  # noqa: B006 - FastAPI copies it
        given: LastGiven = 0,
        protocol: SpokenVersion = FIRST,
        features: SpokenFeatures = [],  # noqa: B006
    ) -> JoinedBody:
        """Registers the site and creates its folder in Git. Idempotent."""
        joined = await welcome(
            central,
            SiteName(site),
            epoch=body.epoch,
            software_version=body.software_version,
            lineage=Lineage(tuple(starts), given),
            protocol=PeerProtocol.said(protocol, features),
        )
        ahead = joined.ahead
        return JoinedBody(
            site=site,
            last_sequence=joined.sequence,
            ahead=None if ahead is None else _ahead_body(ahead),
            is_let_in=joined.is_let_in,
            protocol=joined.protocol.version,
            features=joined.protocol.features,
        )


def _ahead_body(ahead: Ahead) -> AheadBody:
    return AheadBody(
        generation=ahead.generation,
        incarnation=ahead.incarnation,
        rolled_back=[RolledBackBody.model_validate(encode_rolled_back(item)) for item in ahead.rolled_back],
    )


def sites_routes(central: CentralParts, stopping: Stopping) -> Routes:
    router = Router(tags=["sites"])
    _keep_sites(router, central)
    _join_sites(router, central)

    @router.post("/api/v1/sites/{site}/reports", summary="Report what happened at a site", responses={409: {}})
    async def report_from_site(
        caller: CallerOf, site: SiteRef, body: Reports, start: ReportingStart = ""
    ) -> ReportedBody:
        """In order, each once: repeats are harmless, a gap is refused. Durable when answered."""
        aside: list[SetAsideBody] = []
        last = await central.intake.take(
            SiteName(site),
            [Outgoing(item.sequence, item.body) for item in body.reports],
            epoch=body.epoch,
            seen={NodeId(node_id): at for node_id, at in body.seen.items()},
            start=start,
            on_aside=lambda sequence, code, why: aside.append(SetAsideBody(sequence=sequence, code=code, why=why)),
        )
        return ReportedBody(last_sequence=last, set_aside=aside)

    @router.post(
        "/api/v1/sites/{site}/calls",
        summary="A message of a capability at a site to its counterpart at central",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}}, 422: {}, 501: {}},
    )
    async def call_from_site(
        caller: CallerOf, request: Request, site: SiteRef, topic: Annotated[str, Query(min_length=1, max_length=100)]
    ) -> Response:
        answer = await answer_call(central, SiteName(site), topic, await request.body())
        return Response(answer, media_type="application/octet-stream")

    @router.post(
        "/api/v1/sites/{site}/answers/{question}",
        summary="Answer what central asked through the watch stream",
        status_code=204,
        response_class=Response,
        responses={404: {}},
    )
    async def answer_from_site(
        caller: CallerOf,
        site: SiteRef,
        question: Annotated[str, Path(max_length=100)],
        body: Annotated[dict[str, Any], FromBody()],
    ) -> Response:
        await central.questions.answered(SiteName(site), question, body)
        return Response(status_code=204)

    @router.get(
        "/api/v1/sites/{site}/watch",
        summary="Stream changes of the deployments repository and requests of central to the site",
        status_code=200,
        response_class=EventStream,
        responses=SSE_RESPONSES,
    )
    async def watch_repository(caller: CallerOf, site: SiteRef) -> EventStream:
        return EventStream(_calls(central, SiteName(site)), stopping)

    return Routes(router, ACTIONS)


async def _calls(central: CentralParts, site: SiteName) -> AsyncIterator[bytes]:
    async for message in central.calls.listen(site):
        data = encode(message)
        yield frame(data, event=data["kind"])
