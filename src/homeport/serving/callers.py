"""Who asks, and whether they may. Every route declares what it does as an action of the one table of roles:

    async def remove_node(caller: Annotated[Caller, Depends(allowed("nodes.remove"))], …)

Who it is was found out before any route is reached (`authentication`); this only decides.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant

from homeport.core.access.roles import ACTIONS, refusal, site_refusal
from homeport.core.addresses import is_loopback
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.errors import NotAuthorized, Unauthenticated

TOKEN_HINT = "Send one as  Authorization: Bearer hp_… ; an administrator makes it with  homeport tokens create ."
ASK_HINT = "Ask an administrator for a token that may."
ACTION = "homeport_action"
"""The attribute by which a dependency says which action it allows."""


def caller_of(request: Request) -> Caller:
    """Who was found to ask; without access control, being on this machine is what makes an administrator."""
    known = request.scope.get("state", {}).get("caller")
    if isinstance(known, Caller):
        return known
    address = request.client.host if request.client else ""
    if address and not is_loopback(address):
        return Caller("anonymous", Role.VIEWER, address, kind=CallerKind.ANONYMOUS)
    return Caller("local", Role.ADMIN, address)


CallerOf = Annotated[Caller, Depends(caller_of)]


def allowed(action: str) -> Callable[[Request], Caller]:
    """A dependency that gives the caller, or refuses: 401 for nobody, 403 for somebody who may not."""
    assert action in ACTIONS, f"{action} is no action of core.access.roles"

    def caller_who_may(request: Request) -> Caller:
        caller = caller_of(request)
        check(caller, action, site=request.path_params.get("site"))
        return caller

    setattr(caller_who_may, ACTION, action)
    return caller_who_may


def check(caller: Caller, action: str, *, site: str | None = None) -> None:
    """Raises Unauthenticated or Refused unless the caller may do this, at this site if one is named."""
    why = refusal(caller, action)
    if why is not None and caller.kind is CallerKind.ANONYMOUS:
        raise Unauthenticated(why, hint=TOKEN_HINT)
    why = why or (site_refusal(caller, [site]) if site is not None else None)
    if why is not None:
        raise NotAuthorized(why, target=site or "", hint=ASK_HINT)


def check_sites(caller: Caller, sites: Sequence[str]) -> None:
    """Raises Refused unless the caller may act at all of these sites."""
    why = site_refusal(caller, sites)
    if why is not None:
        raise NotAuthorized(why, target=", ".join(sorted(sites)[:5]), hint=ASK_HINT)


def declared_action(dependant: Dependant) -> str | None:
    """The action that a route declares, through any depth of its dependencies."""
    for inner in dependant.dependencies:
        found: str | None = getattr(inner.call, ACTION, None) or declared_action(inner)
        if found is not None:
            return found
    return None
