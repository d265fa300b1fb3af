"""Enrolment at central: sites and clients join here; nodes join at their site."""

from typing import Final

from homeport.central.api.identity import identity_routes
from homeport.central.api.sites import SiteRef
from homeport.central.parts import CentralParts
from homeport.central.registrar import open_enrolment, reach_of
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.identity import IdentityKind
from homeport.errors import NotFound, PeerUnavailable
from homeport.fleet.shared.overview import find_site
from homeport.ports import ExpectNode
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
from homeport.vocabulary import SiteName


def joining_routes(central: CentralParts) -> list[Routes]:
    enrolment = open_enrolment(central.registrar, central.identity, central.store, central.authenticator.end)
    return [
        enrolment_routes(enrolment),
        identities_routes(enrolment),
        identity_routes(central, enrolment),
        bundle_routes(enrolment.bundle),
        invitations_routes(central, enrolment),
    ]


# fmt: off
ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/sites/{site}/join-token"): Action("sites.join-command", Level.ADMIN, Scope.SITE, Audit.OWN),
    ("POST", "/api/v1/sites/{site}/nodes/join-token"):
        Action("nodes.join-command", Level.ADMIN, Scope.SITE, Audit.OWN),
}
# fmt: on


def invitations_routes(central: CentralParts, enrolment: EnrolmentService) -> Routes:
    router = Router(tags=["joining"])

    @router.post("/api/v1/sites/{site}/join-token", summary="A one-time token with which a site joins")
    async def invite_site(caller: CallerOf, site: SiteRef, body: Invite) -> InvitationBody:
        enrolment.check_certifies()
        made = await central.registrar.invite(SiteName(site), caller, lifetime_seconds=body.lifetime_seconds)
        settings = central.settings
        return InvitationBody(
            token=made.text,
            expires_at=made.token.expires_at,
            pin=central.identity.pin,
            git_url=settings.git_url,
        )

    @router.post(
        "/api/v1/sites/{site}/nodes/join-token",
        summary="A one-time token with which a node joins a site",
        responses={404: {}, 503: {}},
    )
    async def invite_node(caller: CallerOf, site: SiteRef, body: Invite) -> InvitationBody:
        """The site has stored the token when this returns, and must be connected for that; the site's own API can
        create one too."""
        enrolment.check_certifies()
        reach = await reach_of(central.store, site)
        if reach is None:
            async with central.store.read() as reader:
                await find_site(reader, site)
            raise NotFound(
                f"Site {site} has no identity, as in  homeport up , so it only accepts nodes on its own machine.",
                hint="Another machine becomes a site of its own:  homeport sites join-command NAME . "
                "A node of this machine:  homeport node --site HOST:PORT , the address of --grpc.",
            )
        made = await central.registrar.invite(
            SiteName(site), caller, lifetime_seconds=body.lifetime_seconds, kind=IdentityKind.NODE
        )
        if not await central.questions.tell(SiteName(site), ExpectNode(made.token)):
            raise PeerUnavailable(
                f"Site {site} is not connected, and has to receive the token.",
                hint=f"Try again when it is back, or ask the site itself with --url {reach.api}",
            )
        return InvitationBody(
            token=made.text, expires_at=made.token.expires_at, pin=reach.pin, api=reach.api, nodes=reach.nodes
        )

    return Routes(router, ACTIONS)
