"""Joining, at a site: its nodes join here, with central there or not."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from homeport.adapters.identity.keys import csr_spki
from homeport.core.model.caller import Caller
from homeport.core.model.identity import IdentityRecord
from homeport.errors import NotFound
from homeport.fleet.conductor import Conductor
from homeport.fleet.enrolment import Registrar
from homeport.fleet.sessions import Sessions
from homeport.serving.callers import allowed
from homeport.serving.enrolling import Desk, Invitation, Invite, bundle_router, enrolment_router, identities_router
from homeport.site.expelling import expel
from homeport.site.identity import SiteIdentity
from homeport.vocabulary import SiteName


def joining_routers(
    identity: SiteIdentity, registrar: Registrar, sessions: Sessions, conductor: Conductor
) -> list[APIRouter]:
    async def removed(record: IdentityRecord) -> None:
        await expel(record, sessions, conductor)

    desk = Desk(registrar=registrar, bundle=lambda: identity.bundle, spki_of=csr_spki, on_removed=removed)
    return [
        enrolment_router(desk),
        identities_router(desk),
        bundle_router(desk.bundle),
        invitations_router(identity, desk),
    ]


def invitations_router(identity: SiteIdentity, desk: Desk) -> APIRouter:
    router = APIRouter(tags=["joining"])
    own = identity.settings.name

    @router.post(
        "/api/v1/sites/{site}/nodes/join-token",
        summary="A one-time token with which a node joins this site",
        responses={404: {}},
    )
    async def invite_node(
        caller: Annotated[Caller, Depends(allowed("nodes.join-command"))],
        site: Annotated[str, Path(max_length=63)],
        body: Invite,
    ) -> Invitation:
        if site != own:
            raise NotFound(f"This is site {own}, not {site}.", hint="Ask central, or that site.")
        desk.check_certifies()
        made = await desk.registrar.invite(SiteName(site), caller, lifetime_seconds=body.lifetime_seconds)
        reach = identity.reach
        return Invitation(
            token=made.text,
            expires_at=made.token.expires_at,
            pin=identity.server.pin,
            api=reach.get("api"),
            nodes=reach.get("nodes"),
        )

    return router
