"""Joining, at central: sites and clients join here, and whoever wants to join a site's node is sent there."""

from typing import Annotated

from fastapi import APIRouter, Depends

from homeport.central.api.identity import identity_router
from homeport.central.api.sites import SiteRef
from homeport.central.parts import CentralParts
from homeport.central.registrar import enrolment_desk, reach_of
from homeport.core.model.caller import Caller
from homeport.core.model.identity import IdentityKind
from homeport.errors import NotFound, PeerUnavailable
from homeport.ports import ExpectNode
from homeport.serving.callers import allowed
from homeport.serving.enrolling import (
    Desk,
    Invitation,
    Invite,
    bundle_router,
    enrolment_router,
    identities_router,
)
from homeport.vocabulary import SiteName


def joining_routers(central: CentralParts) -> list[APIRouter]:
    desk = enrolment_desk(central.registrar, central.identity, central.store, central.gate.end)
    return [
        enrolment_router(desk),
        identities_router(desk),
        identity_router(central, desk),
        bundle_router(desk.bundle),
        invitations_router(central, desk),
    ]


def invitations_router(central: CentralParts, desk: Desk) -> APIRouter:
    router = APIRouter(tags=["joining"])

    @router.post("/api/v1/sites/{site}/join-token", summary="A one-time token with which a site joins")
    async def invite_site(
        caller: Annotated[Caller, Depends(allowed("sites.join-command"))], site: SiteRef, body: Invite
    ) -> Invitation:
        desk.check_certifies()
        made = await central.registrar.invite(SiteName(site), caller, lifetime_seconds=body.lifetime_seconds)
        settings = central.settings
        return Invitation(
            token=made.text,
            expires_at=made.token.expires_at,
            pin=central.identity.pin,
            git_url=settings.git_url or str(settings.own_repository),
        )

    @router.post(
        "/api/v1/sites/{site}/nodes/join-token",
        summary="A one-time token with which a node joins a site",
        responses={404: {}, 503: {}},
    )
    async def invite_node(
        caller: Annotated[Caller, Depends(allowed("nodes.join-command"))], site: SiteRef, body: Invite
    ) -> Invitation:
        """The site is told to expect it, and must be connected for that; it can also be asked itself."""
        desk.check_certifies()
        reach = await reach_of(central.store, site)
        if reach is None:
            raise NotFound(
                f"Site {site} has not joined with an identity, so nothing vouches for its nodes.",
                hint=f"Join it first:  homeport sites join-command {site}",
            )
        made = await central.registrar.invite(
            SiteName(site), caller, lifetime_seconds=body.lifetime_seconds, kind=IdentityKind.NODE
        )
        if not central.calls.ask(SiteName(site), ExpectNode(made.token)):
            raise PeerUnavailable(
                f"Site {site} is not connected, and it must know of the token.",
                hint=f"Try again when it is back, or ask the site itself with --url {reach.api}",
            )
        return Invitation(
            token=made.text, expires_at=made.token.expires_at, pin=reach.pin, api=reach.api, nodes=reach.nodes
        )

    return router
