"""The authority: where trust is discovered, how its key is rotated, and certificates for others' clients."""

import json
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response
from pydantic import Field

from homeport.central.parts import CentralParts
from homeport.core.model.caller import Caller
from homeport.errors import Refused
from homeport.serving.bodies.body import Body, NodeIdText
from homeport.serving.callers import allowed
from homeport.serving.enrolling import Desk, EnrolledBody, Pem, with_etag


class Rotate(Body):
    step: Literal["begin", "switch", "finish"]
    force: bool = Field(default=False, description="Switch or finish although some are not ready for it.")


class AuthorityBody(Body):
    phase: str = Field(description="steady, announced, switched; outside: somebody else certifies.")
    domain: str
    wfm: str
    pin: str
    sequence: int
    anchors: int
    behind: list[str] = Field(description="Who still holds a certificate of the root that goes.")


class IssueClient(Body):
    name: NodeIdText
    csr: Pem


def identity_router(central: CentralParts, desk: Desk) -> APIRouter:
    router = APIRouter(tags=["trust"])

    @router.get("/.well-known/margo", summary="Where the trust bundle is", response_model=None)
    async def discovery(caller: Annotated[Caller, Depends(allowed("identity.bundle"))], request: Request) -> Response:
        uri = f"https://{request.headers['host']}/.well-known/spiffe/bundle.json"
        content = {"trustDomain": central.settings.trust_domain, "trustBundleUri": uri}
        return with_etag(request, json.dumps(content).encode())

    @router.get("/api/v1/authority", summary="The authority and its rotation")
    async def show_authority(caller: Annotated[Caller, Depends(allowed("identity.read"))]) -> AuthorityBody:
        return await _authority(central)

    @router.post("/api/v1/authority/rotation", summary="Rotate the authority's own key", responses={409: {}})
    async def rotate_authority(
        caller: Annotated[Caller, Depends(allowed("identity.rotate"))], body: Rotate
    ) -> AuthorityBody:
        """`begin` publishes the next root beside the old one, `switch` signs with it, `finish` drops the old one.
        Leave between them at least the time in which everybody refreshes the bundle."""
        await _rotate(central, body)
        return await _authority(central)

    @router.post("/api/v1/identities", summary="A certificate for somebody else's client", responses={409: {}})
    async def issue_identity(
        caller: Annotated[Caller, Depends(allowed("identity.issue"))], body: IssueClient
    ) -> EnrolledBody:
        desk.check_certifies()
        grant = await desk.registrar.issue(body.name, body.csr.encode(), caller)
        return desk.answer(grant, grant.record.spki)

    return router


async def _rotate(central: CentralParts, body: Rotate) -> None:
    identity, authority = central.identity, central.identity.own_authority
    behind = await _behind(central)
    if body.step == "finish" and behind and not body.force:
        raise Refused(
            f"{len(behind)} still hold a certificate of the old root: {', '.join(behind[:5])}.",
            hint="They renew within a few refreshes of the bundle; wait, or finish with --force and let them heal.",
        )
    if body.step == "switch" and not body.force:
        _refuse_haste(central)
    step = {
        "begin": authority.begin_rotation,
        "switch": authority.switch,
        "finish": authority.finish_rotation,
    }[body.step]

    def work() -> None:
        step()
        identity.keep_up(at_once=True)

    await anyio.to_thread.run_sync(work)


def _refuse_haste(central: CentralParts) -> None:
    """A certificate of a root that somebody has not heard of yet would cut them off until their next refresh."""
    authority = central.identity.own_authority
    hint = authority.bundle().refresh_hint_seconds
    waited = (central.clock.now() - authority.phase_since).total_seconds()
    if authority.phase == "announced" and waited < hint:
        raise Refused(
            f"Not everybody can have the new root yet: the bundle is refreshed every {hint} s.",
            hint=f"Switch in {hint - waited:.0f} s, or with --force.",
        )


async def _behind(central: CentralParts) -> list[str]:
    """Whose newest certificate is from before the new root began to sign. Only known once it does."""
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
    )
