"""Enrolment at a site: its nodes join here, with or without central."""

from typing import Annotated, Final

from fastapi import Path

from homeport.adapters.identity.keys import csr_name, csr_spki
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.identity import IdentityRecord
from homeport.errors import NotFound
from homeport.fleet.site.conductor import Conductor
from homeport.fleet.site.nodes.streams import NodeSessions
from homeport.identity.enrolment import Registrar
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.enrolment import (
    EnrolmentService,
    InvitationBody,
    Invite,
    bundle_routes,
    enrolment_routes,
    identities_routes,
)
from homeport.serving.routing import Router
from homeport.site.expulsion import evict
from homeport.site.identity import SiteIdentity
from homeport.vocabulary import SiteName


def joining_routes(
    identity: SiteIdentity, registrar: Registrar, sessions: NodeSessions, conductor: Conductor
) -> list[Routes]:
    async def removed(record: IdentityRecord) -> None:
        await evict(record, sessions, conductor)

    enrolment = EnrolmentService(
        registrar=registrar, bundle=lambda: identity.bundle, spki_of=csr_spki, name_of=csr_name, on_removed=removed
    )
    return [
        enrolment_routes(enrolment),
        identities_routes(enrolment),
        bundle_routes(enrolment.bundle),
        invitations_routes(identity, enrolment),
    ]


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/sites/{site}/nodes/join-token"):
        Action("nodes.join-command", Level.ADMIN, Scope.SITE, Audit.OWN),
}
# fmt: on


def invitations_routes(identity: SiteIdentity, enrolment: EnrolmentService) -> Routes:
    router = Router(tags=["joining"])
    own = identity.settings.name

    @router.post(
        "/api/v1/sites/{site}/nodes/join-token",
        summary="A one-time token with which a node joins this site",
        responses={404: {}},
    )
    async def invite_node(
        caller: CallerOf,
        site: Annotated[str, Path(max_length=63)],
        body: Invite,
    ) -> InvitationBody:
        if site != own:
            raise NotFound(f"This is site {own}, not {site}.", hint="Ask central, or that site.")
        enrolment.check_certifies()
        made = await enrolment.registrar.invite(SiteName(site), caller, lifetime_seconds=body.lifetime_seconds)
        reach = identity.reach
        return InvitationBody(
            token=made.text,
            expires_at=made.token.expires_at,
            pin=identity.server.pin,
            api=reach.get("api"),
            nodes=reach.get("nodes"),
        )

    return Routes(router, ACTIONS)
