"""The authority: trust discovery, rotation of its key, and certificates for third-party clients."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

import anyio.to_thread
from fastapi import Request, Response
from pydantic import Field

from homeport.adapters.identity.authority import FileAuthority
from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.margo.problems import problem
from homeport.errors import NotFound, Refused
from homeport.serving.bodies.body import Body, NodeIdText
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.enrolment import EnrolledBody, EnrolmentService, Pem, with_etag
from homeport.serving.routing import Router


class Rotate(Body):
    step: Literal["begin", "switch", "finish"]
    force: bool = Field(default=False, description="Switch or finish even if some machines are not ready.")


class AuthorityBody(Body):
    phase: str = Field(description="steady, announced, switched; outside: an external authority certifies.")
    domain: str
    wfm: str
    pin: str
    sequence: int
    anchors: int
    behind: list[str] = Field(description="Who still holds a certificate of the root that goes.")
    wait_seconds: int = Field(
        default=0, description="Until every site and node has fetched the new root, and it may sign."
    )


class IssueClient(Body):
    name: NodeIdText
    csr: Pem


# fmt: off
ACTIONS: Final[Actions] = {
    # what a machine needs before it can trust us
    ("GET", "/.well-known/margo"): Action("identity.bundle", Level.OPEN, Scope.NONE, Audit.NONE),
    ("GET", "/api/v1/authority"): Action("identity.read", Level.ADMIN, Scope.FLEET, Audit.NONE),
    ("POST", "/api/v1/authority/rotation"): Action("identity.rotate", Level.ADMIN, Scope.FLEET, Audit.WAIT),
    ("POST", "/api/v1/identities"): Action("identity.issue", Level.ADMIN, Scope.FLEET, Audit.OWN),
}
# fmt: on


def identity_routes(central: CentralParts, enrolment: EnrolmentService) -> Routes:
    router = Router(tags=["trust"])

    @router.get("/.well-known/margo", summary="Where the trust bundle is", response_model=None, responses={404: {}})
    async def discovery(caller: CallerOf, request: Request) -> Response:
        """Margo's document, for clients that may fetch the bundle over https only."""
        if request.url.scheme != "https":
            body = problem("discovery-document-not-found", "Trust bundles are fetched over https, and this is http.")
            body["code"] = NotFound.code
            return Response(json.dumps(body), status_code=404, media_type="application/problem+json")
        uri = f"https://{request.headers['host']}/.well-known/spiffe/bundle.json"
        content = {"trustDomain": central.settings.trust_domain, "trustBundleUri": uri}
        return with_etag(request, json.dumps(content).encode())

    @router.get("/api/v1/authority", summary="The authority and its rotation")
    async def show_authority(caller: CallerOf) -> AuthorityBody:
        return await _authority(central)

    @router.post("/api/v1/authority/rotation", summary="Rotate the authority's own key", responses={409: {}})
    async def rotate_authority(caller: CallerOf, body: Rotate) -> AuthorityBody:
        """`begin` publishes the next root in addition to the old one, `switch` signs with it, `finish` drops the old
        one. Leave at least the refresh interval of the bundle between them."""
        await _rotate(central, body)
        return await _authority(central)

    @router.post("/api/v1/identities", summary="A certificate for a third-party client", responses={409: {}})
    async def issue_identity(caller: CallerOf, body: IssueClient) -> EnrolledBody:
        enrolment.check_certifies()
        grant = await enrolment.registrar.issue(body.name, body.csr.encode(), caller)
        return enrolment.answer(grant, grant.record.spki)

    return Routes(router, ACTIONS)


async def _rotate(central: CentralParts, body: Rotate) -> None:
    await anyio.to_thread.run_sync(central.identity.keep_up)  # from the last step, made by any replica
    behind = await _behind(central)
    if body.step == "finish" and behind and not body.force:
        raise Refused(
            f"{len(behind)} still hold a certificate of the old root: {', '.join(behind[:5])}.",
            hint="They renew within a few refreshes of the bundle; wait, or finish with --force and let them heal.",
        )
    if body.step == "switch" and not body.force:
        _refuse_too_early(central)
    await anyio.to_thread.run_sync(central.identity.rotate, _STEPS[body.step])
    central.access_changes.publish()


_STEPS: Final[Mapping[str, Callable[[FileAuthority], object]]] = {
    "begin": FileAuthority.begin_rotation,
    "switch": FileAuthority.switch,
    "finish": FileAuthority.finish_rotation,
}


def _refuse_too_early(central: CentralParts) -> None:
    """A certificate of a root that a machine has not fetched yet would disconnect it until its next refresh."""
    seconds = _wait_seconds(central)
    if seconds > 0:
        every = central.identity.own_authority.bundle().refresh_hint_seconds
        raise Refused(
            f"Some may not have the new root yet: sites fetch it every {every} s, and then their nodes do.",
            hint=f"Switch in {math.ceil(seconds)} s, or with --force.",
        )


def _wait_seconds(central: CentralParts) -> float:
    """Two refreshes: a site may have fetched the bundle just before the rotation began, and its nodes, which fetch it
    from their site, just before the site did again."""
    authority = central.identity.own_authority
    waited = (central.clock.now() - authority.phase_since).total_seconds()
    left = 2 * authority.bundle().refresh_hint_seconds - waited
    return max(0.0, left) if authority.phase == "announced" else 0.0


async def _behind(central: CentralParts) -> list[str]:
    """Machines whose newest certificate is older than the switch to the new root. Only known after the switch."""
    if central.identity.is_outside or central.identity.own_authority.phase != "switched":
        return []
    since = central.identity.own_authority.phase_since
    return [
        record.spiffe_id
        for record in await central.registrar.identities()
        if central.registrar.is_older(record, since)
    ]


async def _authority(central: CentralParts) -> AuthorityBody:
    identity = central.identity
    bundle = identity.authority.bundle()
    return AuthorityBody(
        phase="outside" if identity.is_outside else identity.own_authority.phase.value,
        domain=bundle.domain,
        wfm=central.settings.wfm_id,
        pin=identity.pin,
        sequence=bundle.sequence,
        anchors=len(bundle.anchors),
        behind=await _behind(central),
        wait_seconds=0 if identity.is_outside else math.ceil(_wait_seconds(central)),
    )
