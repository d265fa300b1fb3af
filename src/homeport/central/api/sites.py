"""How sites reach central: they join, report, and listen for moves of the repository. They dial out; central
never calls them."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi import Body as FromBody

from homeport.central.link import welcome
from homeport.central.parts import CentralParts
from homeport.core.model.caller import Caller
from homeport.fleet.labels import label_site
from homeport.fleet.overview import view_sites
from homeport.ports import (
    DrainNode,
    ExpectNode,
    LiftHold,
    Moved,
    NodeIdentities,
    Outgoing,
    RemoveNode,
    RollBack,
    SecretsChanged,
    SetHold,
)
from homeport.serving.bodies.fleet import LabelSite, SiteBody
from homeport.serving.bodies.reports import JoinedBody, JoinSite, ReportedBody, Reports
from homeport.serving.callers import allowed
from homeport.serving.reading import SSE_RESPONSES
from homeport.serving.server import Stopping
from homeport.serving.showing import site_body
from homeport.serving.sse import EventStream, frame
from homeport.vocabulary import SITE_NAME_PATTERN, NodeId, SiteName
from homeport.wire.join_tokens import encode as encode_token
from homeport.wire.reports import encode_hold

SiteRef = Annotated[str, Path(pattern=SITE_NAME_PATTERN, description="Small letters, digits and dashes.")]


def sites_router(central: CentralParts, stopping: Stopping) -> APIRouter:
    router = APIRouter(tags=["sites"])

    @router.put("/api/v1/sites/{site}", summary="Join, or join again after a restart")
    async def join_site(
        caller: Annotated[Caller, Depends(allowed("sites.join"))], site: SiteRef, body: JoinSite
    ) -> JoinedBody:
        """Makes the site known and gives it its folder in Git. Repeating it is harmless."""
        last = await welcome(central, SiteName(site), epoch=body.epoch, software_version=body.software_version)
        return JoinedBody(site=site, last_sequence=last)

    @router.patch("/api/v1/sites/{site}", summary="Label a site", responses={404: {}})
    async def label(
        caller: Annotated[Caller, Depends(allowed("sites.label"))], site: SiteRef, body: LabelSite
    ) -> SiteBody:
        """Changes the site's marker in Git. What its group has then comes to it."""
        found = await label_site(site, body.labels, caller, central.desk)
        async with central.store.read() as reader:
            views = await view_sites(reader, central.office.watchfulness, central.clock.now())
        return next(site_body(view) for view in views if view.site.name == found.name)

    @router.post("/api/v1/sites/{site}/reports", summary="Report what happened at a site", responses={409: {}})
    async def report_from_site(
        caller: Annotated[Caller, Depends(allowed("sites.report"))], site: SiteRef, body: Reports
    ) -> ReportedBody:
        """In order, each once: repeats are harmless, a gap is refused. Durable when answered."""
        last = await central.intake.take(
            SiteName(site),
            [Outgoing(item.sequence, item.body) for item in body.reports],
            epoch=body.epoch,
            seen={NodeId(node_id): at for node_id, at in body.seen.items()},
        )
        return ReportedBody(last_sequence=last)

    @router.post(
        "/api/v1/sites/{site}/answers/{question}",
        summary="Answer what central asked through the watch stream",
        status_code=204,
        response_class=Response,
        responses={404: {}},
    )
    async def answer_from_site(
        caller: Annotated[Caller, Depends(allowed("sites.report"))],
        site: SiteRef,
        question: Annotated[str, Path(max_length=100)],
        body: Annotated[dict[str, Any], FromBody()],
    ) -> Response:
        central.questions.answered(SiteName(site), question, body)
        return Response(status_code=204)

    @router.get(
        "/api/v1/sites/{site}/watch",
        summary="Hear at once when the deployments repository moves, and what else central asks of the site",
        status_code=200,
        response_class=EventStream,
        responses=SSE_RESPONSES,
    )
    async def watch_repository(
        caller: Annotated[Caller, Depends(allowed("sites.watch"))], site: SiteRef
    ) -> EventStream:
        return EventStream(_calls(central, SiteName(site)), stopping)

    return router


async def _calls(central: CentralParts, site: SiteName) -> AsyncIterator[bytes]:
    async for call in central.calls.listen(site):
        match call:
            case Moved():
                yield frame({"commit": call.commit}, event="moved")
            case RemoveNode():
                yield frame({"node_id": call.node_id}, event="remove-node")
            case SecretsChanged():
                yield frame({"secrets": "changed"}, event="secrets")
            case RollBack():
                yield frame({"roll_back": asdict(call)}, event="roll-back")
            case NodeIdentities():
                asked = {"question": call.question, "step": call.step, "name": call.name, "by": call.by}
                yield frame(asked, event="node-identities")
            case ExpectNode():
                yield frame({"expect": encode_token(call.token)}, event="expect-node")
            case DrainNode():
                yield frame({"drain": {"node_id": call.node_id, "reason": call.reason}}, event="drain-node")
            case SetHold():
                yield frame({"hold": encode_hold(call.hold)}, event="hold")
            case LiftHold():
                yield frame({"release": {"deployment_id": call.deployment_id, "by": call.by}}, event="release")
