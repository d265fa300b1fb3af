"""Joining and renewal of machines, at central (sites) and at a site (its nodes), and the decisions about them.
Joining needs no authentication, because the machine has no identity yet: the join token or the proof of a key is in
the body.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Path, Query, Request, Response
from pydantic import Field

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.access.throttle import Throttle, address_key
from homeport.core.identity.joining import reach_mark
from homeport.core.margo.text import is_not_modified
from homeport.core.model.identity import IdentityKind, IdentityRecord, IdentityStatus
from homeport.errors import Conflict, InvalidInput, NotFound, Refused, TooManyAttempts
from homeport.identity.enrolment import Registrar
from homeport.identity.register import Application, Grant
from homeport.lazy_dataclass import dataclass
from homeport.ports import IDENTITIES, IdentityFilter
from homeport.serving.bodies.body import Body, Message, NodeIdText, PageBody
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.pages import PageRequest, asked
from homeport.serving.routing import Router

Pem = Annotated[str, Field(min_length=1, max_length=16_384)]
KeyHash = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Path(max_length=200, description="A site's or client's name, or a node's id.")]


class Reach(Message):
    """How nodes reach a site, as reported by the site itself."""

    nodes: str = Field(max_length=300, description="HOST:PORT that nodes dial.")
    api: str = Field(max_length=300, description="The URL of the site's own API.")
    pin: str = Field(max_length=100, description="The key of that API, as `sha256:` and hex.")


class Enrol(Message):
    name: NodeIdText
    csr: Pem
    authority_csr: Pem | None = Field(default=None, description="Of a site: for the intermediate of its nodes.")
    token: str | None = Field(default=None, max_length=300)
    reach: Reach | None = None


class Renew(Message):
    spiffe_id: str = Field(max_length=2048)
    csr: Pem
    reach: Reach | None = None


class Approve(Body):
    key: str | None = Field(
        default=None, max_length=100, description="Only if the machine asks with this key, as `sha256:` and hex."
    )


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


class IdentitiesBody(PageBody):
    identities: list[IdentityBody]


IdentitiesPage = Annotated[PageRequest, Depends(asked(IDENTITIES, IdentityBody))]
Standing = Annotated[IdentityStatus | None, Query(description="Only those with this status.")]
Kind = Annotated[IdentityKind | None, Query(description="Only clients, which sites are too, or only nodes.")]


class InvitationBody(Body):
    token: str = Field(description="Shown once.")
    expires_at: datetime
    pin: str = Field(description="The key to expect where it joins.")
    api: str | None = Field(default=None, description="Where to join; null: where this was asked.")
    nodes: str | None = Field(default=None, description="HOST:PORT that the node dials once it has joined.")
    git_url: str | None = None


class Invite(Body):
    lifetime_seconds: float = Field(default=3600.0, ge=1.0, le=30 * 86_400.0)


@dataclass(frozen=True, slots=True)
class EnrolmentService:
    """What the routes need of their role."""

    registrar: Registrar
    bundle: Callable[[], bytes]
    spki_of: Callable[[bytes], str]
    name_of: Callable[[bytes], str]
    on_removed: Callable[[IdentityRecord], Awaitable[None]]
    """Closes the machine's open connections."""
    on_reach: Callable[[str, Reach], Awaitable[None]] | None = None

    throttle: Throttle = field(default_factory=Throttle)

    def check_certifies(self) -> None:
        """With an external authority no machine can join here."""
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
        """Counts refusals by source address, so that tokens and names cannot be guessed."""
        try:
            yield
        except (Refused, Conflict, NotFound, InvalidInput) as error:
            seconds = self.throttle.failed(address_key(address), self.registrar.clock.monotonic())
            if seconds > 0:
                many = TooManyAttempts(
                    "Too many refused requests to join come from this address.",
                    retry_after_seconds=seconds,
                    hint="Wait as long as Retry-After says. A valid request is still answered.",
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


# fmt: off
_BUNDLE_ACTIONS: Final[Actions] = {
    # what a machine needs before it can trust us
    ("GET", "/.well-known/spiffe/bundle.json"): Action("identity.bundle", Level.OPEN, Scope.NONE, Audit.NONE),
}
# fmt: on


def bundle_routes(bundle: Callable[[], bytes]) -> Routes:
    """The trust bundle, for clients that authenticate us by other means."""
    router = Router(tags=["trust"])

    @router.get(
        "/.well-known/spiffe/bundle.json",
        summary="The trust bundle: a SPIFFE JWK set",
        response_model=None,
        responses={304: {"description": "It has not changed."}},
    )
    async def trust_bundle(caller: CallerOf, request: Request) -> Response:
        return with_etag(request, bundle())

    return Routes(router, _BUNDLE_ACTIONS)


def with_etag(request: Request, content: bytes) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if is_not_modified(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


_JOIN: Final = Action(
    "enrolment.join", Level.OPEN, Scope.NONE, Audit.OWN
)  # the join token or the proof of a known key is in the body
# fmt: off
_ENROLMENT_ACTIONS: Final[Actions] = {
    ("POST", "/api/v1/enrolments"): _JOIN,
    ("GET", "/api/v1/enrolments/{key}"): _JOIN,
    ("POST", "/api/v1/identity/renew"): _JOIN,
}
# fmt: on


def enrolment_routes(enrolment: EnrolmentService) -> Routes:
    router = Router(tags=["joining"])

    @router.post("/api/v1/enrolments", summary="Join with a token, or ask to be approved", responses={409: {}})
    async def enrol(caller: CallerOf, body: Enrol) -> EnrolledBody:
        """The key stays with the machine; the name in the certificate is decided here."""
        enrolment.check_certifies()
        csr = body.csr.encode()
        application = Application(
            name=body.name,
            csr=csr,
            authority_csr=None if body.authority_csr is None else body.authority_csr.encode(),
            token=body.token,
            address=caller.address,
        )
        with enrolment.throttled(caller.address):
            key = enrolment.spki_of(csr)
            grant = await enrolment.registrar.enrol(application)
        if grant is not None:
            await enrolment.reached(body.name, body.reach)
        return enrolment.answer(grant, key)

    @router.get("/api/v1/enrolments/{key}", summary="The status of a request to join", responses={404: {}})
    async def enrolment_outcome(caller: CallerOf, key: KeyHash) -> EnrolledBody:
        enrolment.check_certifies()
        with enrolment.throttled(caller.address):
            return enrolment.answer(await enrolment.registrar.outcome(key), key)

    @router.post("/api/v1/identity/renew", summary="Renew a certificate by proof of its key")
    async def renew_identity(caller: CallerOf, body: Renew) -> EnrolledBody:
        """Also after the last certificate has expired: proof of the recorded key is enough."""
        enrolment.check_certifies()
        csr = body.csr.encode()
        with enrolment.throttled(caller.address):
            grant = await enrolment.registrar.renew(body.spiffe_id, csr, address=caller.address)
        # Without the mark, a holder of an old request could send the nodes of this site elsewhere.
        if body.reach is not None and enrolment.name_of(csr) == reach_mark(body.reach.model_dump()):
            await enrolment.reached(grant.record.name, body.reach)
        return enrolment.answer(grant, grant.record.spki)

    return Routes(router, _ENROLMENT_ACTIONS)


# fmt: off
_IDENTITIES_ACTIONS: Final[Actions] = {
    ("GET", "/api/v1/identities"): Action("identity.read", Level.ADMIN, Scope.FLEET, Audit.NONE),
    ("POST", "/api/v1/identities/{name}/approve"): Action("identity.approve", Level.ADMIN, Scope.FLEET, Audit.OWN),
    ("DELETE", "/api/v1/identities/{name}"): Action("identity.remove", Level.ADMIN, Scope.FLEET, Audit.OWN),
}
# fmt: on


def identities_routes(enrolment: EnrolmentService) -> Routes:
    router = Router(tags=["identities"])

    @router.get(
        "/api/v1/identities",
        summary="Identities of machines: accepted, pending and removed",
        response_model=IdentitiesBody,
    )
    async def list_identities(
        caller: CallerOf, page: IdentitiesPage, standing: Standing = None, kind: Kind = None
    ) -> Response:
        where = IdentityFilter(standing=standing, kind=kind)
        async with enrolment.registrar.store.read() as reader:
            found = await reader.page(IDENTITIES, where, page.cut)
        return page.answer("identities", [shown(record) for record in found.items], found.next)

    @router.post(
        "/api/v1/identities/{name}/approve", summary="Approve a waiting machine", responses={404: {}, 409: {}}
    )
    async def approve_identity(caller: CallerOf, name: Name, body: Approve | None = None) -> IdentityBody:
        return shown(await enrolment.registrar.approve(name, caller, key=None if body is None else body.key))

    @router.delete(
        "/api/v1/identities/{name}",
        summary="Remove the identity of a machine and disconnect it",
        responses={404: {}},
    )
    async def remove_identity(caller: CallerOf, name: Name) -> IdentityBody:
        """Its workloads keep running; it is no longer trusted. A pending machine is denied."""
        removed = await enrolment.registrar.remove(name, caller)
        await enrolment.on_removed(removed)
        return shown(removed)

    return Routes(router, _IDENTITIES_ACTIONS)


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
