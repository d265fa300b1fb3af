"""Node management from central: removing one, and enrolment. The site does it; central forwards the request."""

from typing import Annotated, Final, TypeVar

from fastapi import Path, Response
from pydantic import BaseModel, ValidationError

from homeport.central.api.sites import SiteRef
from homeport.central.parts import CentralParts
from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.core.model.caller import Caller
from homeport.errors import BadAnswer
from homeport.fleet.central.sites.node_removal import remove_node
from homeport.fleet.shared.overview import find_node, find_site
from homeport.fleet.shared.scope import seen_by
from homeport.serving.capability import Routes
from homeport.serving.middleware.callers import CallerOf
from homeport.serving.routes.enrolment import (
    Approve,
    IdentitiesBody,
    IdentitiesPage,
    IdentityBody,
    Name,
    Standing,
)
from homeport.serving.routing import Router
from homeport.vocabulary import SiteName
from homeport.wire.answers import Answer

B = TypeVar("B", bound=BaseModel)

# fmt: off
ACTIONS: Final[Actions] = {
    ("DELETE", "/api/v1/nodes/{node_id}"): Action("nodes.remove", Level.ADMIN, Scope.SEEN, Audit.WAIT),
    ("GET", "/api/v1/sites/{site}/nodes/identities"): Action("nodes.pending", Level.ADMIN, Scope.SITE, Audit.NONE),
    ("POST", "/api/v1/sites/{site}/nodes/identities/{name}/approve"):
        Action("nodes.approve", Level.ADMIN, Scope.SITE, Audit.WAIT),
    ("DELETE", "/api/v1/sites/{site}/nodes/identities/{name}"):
        Action("nodes.expel", Level.ADMIN, Scope.SITE, Audit.WAIT),
}
# fmt: on


def nodes_routes(central: CentralParts) -> Routes:
    router = Router(tags=["nodes"])

    @router.delete(
        "/api/v1/nodes/{node_id}",
        summary="Remove a node; its workloads are no longer managed",
        status_code=204,
        response_class=Response,
        responses={404: {}, 409: {}},
    )
    async def delete_node(caller: CallerOf, node_id: Annotated[str, Path(max_length=200)]) -> Response:
        async with seen_by(caller, central.store).read() as reader:
            await find_node(reader, node_id)
        await remove_node(node_id, central.store, central.questions)
        return Response(status_code=204)

    @router.get(
        "/api/v1/sites/{site}/nodes/identities",
        summary="Identities of a site's nodes: accepted, pending and removed",
        response_model=IdentitiesBody,
        responses={404: {}, 502: {}, 503: {}},
    )
    async def list_node_identities(
        caller: CallerOf, site: SiteRef, page: IdentitiesPage, standing: Standing = None
    ) -> Response:
        """The site is asked, and must be connected."""
        every = (await ask(IdentitiesBody, site, "list", "", caller)).identities
        wanted = [each for each in every if standing in (None, each.standing)]
        by_name = page.sorted_by("name", None)
        found = by_name.part_of(wanted, lambda each: (each.spiffe_id,))
        return by_name.answer("identities", found.items, found.next)

    @router.post(
        "/api/v1/sites/{site}/nodes/identities/{name}/approve",
        summary="Approve a node that waits at its site",
        responses={404: {}, 502: {}, 503: {}},
    )
    async def approve_node_identity(
        caller: CallerOf, site: SiteRef, name: Name, body: Approve | None = None
    ) -> IdentityBody:
        key = "" if body is None or body.key is None else body.key
        return await ask(IdentityBody, site, "approve", name, caller, key=key)

    @router.delete(
        "/api/v1/sites/{site}/nodes/identities/{name}",
        summary="Remove the identity of a node and disconnect it",
        responses={404: {}, 502: {}, 503: {}},
    )
    async def remove_node_identity(caller: CallerOf, site: SiteRef, name: Name) -> IdentityBody:
        """Its workloads keep running; it is no longer trusted. A pending node is denied."""
        return await ask(IdentityBody, site, "remove", name, caller)

    async def ask(form: type[B], site: str, step: str, name: str, caller: Caller, *, key: str = "") -> B:
        async with central.store.read() as reader:
            await find_site(reader, site)
        return read_answer(
            form, site, await central.questions.node_identities(SiteName(site), step, name, caller.name, key)
        )

    return Routes(router, ACTIONS)


def read_answer(form: type[B], site: str, answer: Answer) -> B:
    """Unknown fields of a newer site are ignored. Raises BadAnswer for an invalid answer."""
    try:
        return form.model_validate(answer, extra="ignore")
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, item["loc"])) or "the whole" for item in error.errors()})[:5])
        raise BadAnswer(f"Site {site} answered in a form that this central cannot read: {fields}.") from error
