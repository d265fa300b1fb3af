"""Where machines join and are renewed, at central (sites) and at a site (its nodes), and where people decide about
them. Joining is open, for whoever asks has no identity yet: the join token or the proof of a key is in the body.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field

from homeport.core.access.throttle import Throttle, address_key
from homeport.core.model.caller import Caller
from homeport.core.model.identity import IdentityRecord
from homeport.errors import Conflict, InvalidInput, NotFound, Refused, TooManyAttempts
from homeport.fleet.enrolment import Registrar
from homeport.fleet.register import Application, Grant
from homeport.serving.bodies.body import Body, NodeIdText
from homeport.serving.callers import allowed

Pem = Annotated[str, Field(min_length=1, max_length=16_384)]
Name = Annotated[str, Path(max_length=200, description="A site's or client's name, or a node's id.")]


class Reach(Body):
    """How a site is reached by its nodes, as the site itself says."""

    nodes: str = Field(max_length=300, description="HOST:PORT that nodes dial.")
    api: str = Field(max_length=300, description="The URL of the site's own API.")
    pin: str = Field(max_length=100, description="The key of that API, as `sha256:` and hex.")


class Enrol(Body):
    name: NodeIdText
    csr: Pem
    authority_csr: Pem | None = Field(default=None, description="Of a site: for the intermediate of its nodes.")
    token: str | None = Field(default=None, max_length=300)
    reach: Reach | None = None


class Renew(Body):
    spiffe_id: str = Field(max_length=2048)
    csr: Pem
    reach: Reach | None = None


class EnrolledBody(Body):
    id: str = Field(description="Ask for this one while it is pending: the hash of the key.")
    standing: Literal["pending", "accepted"]
    domain: str
    wfm: str
    spiffe_id: str | None = None
    chain: str | None = Field(default=None, description="PEM, leaf first.")
    authority_chain: str | None = None
    bundle: dict[str, Any] | None = Field(default=None, description="A SPIFFE trust bundle.")


class IdentityBody(Body):
    spiffe_id: str
    kind: str
    name: str
    site: str | None
    standing: str
    key: str = Field(description="The hash of its key; `any` where an authority outside certifies.")
    not_after: datetime | None
    address: str
    requested_at: datetime
    decided_at: datetime | None
    decided_by: str


class IdentitiesBody(Body):
    identities: list[IdentityBody]


class Invitation(Body):
    token: str = Field(description="Shown once.")
    expires_at: datetime
    pin: str = Field(description="The key to expect where it joins.")
    api: str | None = Field(default=None, description="Where to join; null: where this was asked.")
    nodes: str | None = Field(default=None, description="HOST:PORT that the node dials once it has joined.")
    git_url: str | None = None


class Invite(Body):
    lifetime_seconds: float = Field(default=3600.0, ge=1.0, le=30 * 86_400.0)


@dataclass(frozen=True, slots=True)
class Desk:
    """What the routes need of the role they are in."""

    registrar: Registrar
    bundle: Callable[[], bytes]
    spki_of: Callable[[bytes], str]
    on_removed: Callable[[IdentityRecord], Awaitable[None]]
    """Ends what the machine has open."""
    on_reach: Callable[[str, Reach], Awaitable[None]] | None = None

    throttle: Throttle = field(default_factory=Throttle)

    def check_certifies(self) -> None:
        """Nobody joins here where an authority outside certifies."""
        realm = self.registrar.realm
        if realm.is_outside:
            name = "NAME" if realm.site is None else "NODE"
            noun = "sites" if realm.site is None else "nodes"
            raise Refused(
                f"Machines do not join here: an authority outside Homeport certifies those of {realm.domain}.",
                hint=f"Have its SVID issued there, start it with --svid-dir, and admit it:  "
                f"homeport {noun} approve {name}",
            )

    @contextmanager
    def throttled(self, address: str) -> Iterator[None]:
        """Counts what is refused against where it comes from: nobody tries tokens or names for long."""
        try:
            yield
        except (Refused, Conflict, NotFound, InvalidInput) as error:
            seconds = self.throttle.failed(address_key(address), self.registrar.clock.monotonic())
            if seconds > 0:
                many = TooManyAttempts(
                    "Too many refused requests to join come from this address.",
                    retry_after_seconds=seconds,
                    hint="Wait as long as Retry-After says. A request in order is answered all the same.",
                )
                many.is_recorded = error.is_recorded
                raise many from error
            raise

    async def reached(self, name: str, reach: Reach | None) -> None:
        if reach is not None and self.on_reach is not None:
            await self.on_reach(name, reach)

    def answer(self, grant: Grant | None, key: str) -> EnrolledBody:
        realm = self.registrar.realm
        if grant is None:
            return EnrolledBody(id=key, standing="pending", domain=realm.domain, wfm=realm.wfm)
        return EnrolledBody(
            id=key,
            standing="accepted",
            domain=realm.domain,
            wfm=realm.wfm,
            spiffe_id=grant.record.spiffe_id,
            chain=grant.svid.chain.decode(),
            authority_chain=None if grant.authority is None else grant.authority.chain.decode(),
            bundle=json.loads(self.bundle()),
        )


def bundle_router(bundle: Callable[[], bytes]) -> APIRouter:
    """The trust bundle, for whoever knows by other means that it is us who answer."""
    router = APIRouter(tags=["trust"])

    @router.get(
        "/.well-known/spiffe/bundle.json",
        summary="The trust bundle: a SPIFFE JWK set",
        response_model=None,
        responses={304: {"description": "It is the one you have."}},
    )
    async def trust_bundle(
        caller: Annotated[Caller, Depends(allowed("identity.bundle"))], request: Request
    ) -> Response:
        return with_etag(request, bundle())

    return router


def with_etag(request: Request, content: bytes) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    given = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag in given or "*" in given:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def enrolment_router(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["joining"])
    anybody = Annotated[Caller, Depends(allowed("enrolment.join"))]

    @router.post("/api/v1/enrolments", summary="Join with a token, or ask to be approved", responses={409: {}})
    async def enrol(caller: anybody, body: Enrol) -> EnrolledBody:
        """The key stays with the machine; the name in the certificate is decided here."""
        desk.check_certifies()
        csr = body.csr.encode()
        application = Application(
            name=body.name,
            csr=csr,
            authority_csr=None if body.authority_csr is None else body.authority_csr.encode(),
            token=body.token,
            address=caller.address,
        )
        with desk.throttled(caller.address):
            key = desk.spki_of(csr)
            grant = await desk.registrar.enrol(application)
        if grant is not None:
            await desk.reached(body.name, body.reach)
        return desk.answer(grant, key)

    @router.get("/api/v1/enrolments/{key}", summary="What became of a request to join", responses={404: {}})
    async def enrolment_outcome(caller: anybody, key: Annotated[str, Path(pattern="^[0-9a-f]{64}$")]) -> EnrolledBody:
        desk.check_certifies()
        with desk.throttled(caller.address):
            return desk.answer(await desk.registrar.outcome(key), key)

    @router.post("/api/v1/identity/renew", summary="Renew a certificate by proof of its key")
    async def renew_identity(caller: anybody, body: Renew) -> EnrolledBody:
        """Also after the last certificate has ended: who holds the known key heals without a person."""
        desk.check_certifies()
        csr = body.csr.encode()
        with desk.throttled(caller.address):
            grant = await desk.registrar.renew(body.spiffe_id, csr, address=caller.address)
        await desk.reached(grant.record.name, body.reach)
        return desk.answer(grant, grant.record.spki)

    return router


def identities_router(desk: Desk) -> APIRouter:
    router = APIRouter(tags=["identities"])

    @router.get("/api/v1/identities", summary="Who has joined, who asks to, who was removed")
    async def list_identities(caller: Annotated[Caller, Depends(allowed("identity.read"))]) -> IdentitiesBody:
        return IdentitiesBody(identities=[shown(record) for record in await desk.registrar.identities()])

    @router.post("/api/v1/identities/{name}/approve", summary="Let a waiting machine in", responses={404: {}})
    async def approve_identity(
        caller: Annotated[Caller, Depends(allowed("identity.approve"))], name: Name
    ) -> IdentityBody:
        return shown(await desk.registrar.approve(name, caller))

    @router.delete("/api/v1/identities/{name}", summary="Send a machine away, at once", responses={404: {}})
    async def remove_identity(
        caller: Annotated[Caller, Depends(allowed("identity.remove"))], name: Name
    ) -> IdentityBody:
        """What it runs goes on; nothing of it is believed any more. A waiting machine is denied."""
        removed = await desk.registrar.remove(name, caller)
        await desk.on_removed(removed)
        return shown(removed)

    return router


def shown(record: IdentityRecord) -> IdentityBody:
    return IdentityBody(
        spiffe_id=record.spiffe_id,
        kind=record.kind.value,
        name=record.name,
        site=record.site,
        standing=record.standing.value,
        key=f"sha256:{record.spki}" if record.spki else "any",
        not_after=record.not_after,
        address=record.address,
        requested_at=record.requested_at,
        decided_at=record.decided_at,
        decided_by=record.decided_by,
    )
