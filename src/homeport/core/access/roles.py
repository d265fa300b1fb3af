"""Authorization: whether a caller may perform an action of the table, and at which sites.

A viewer reads, an operator also changes what runs, an administrator also manages users and machines. Machines have
no role: they may perform machine actions, and only for themselves.
"""

from collections.abc import Collection
from typing import Final

from homeport.core.access.actions import Action, Level, Scope
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.vocabulary import SiteName

_RANK: Final = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}
_NEEDS: Final = {
    Level.KNOWN: 1,
    Level.VIEWER: 1,
    Level.OPERATOR: 2,
    Level.ADMIN: 3,
    Level.MACHINE: 3,
}


def refusal(caller: Caller, action: Action) -> str | None:
    """Why the caller may not perform the action at any site, as a sentence; None when it may."""
    level = action.least
    if level is Level.OPEN:
        return None
    match caller.kind:
        case CallerKind.ANONYMOUS:
            return "This needs an access token."
        case CallerKind.MACHINE:
            is_for_machines = level in {Level.KNOWN, Level.MACHINE, Level.MACHINE_ONLY}
            return None if is_for_machines else f"{caller.name} is a machine and may not do this."
        case _:
            return _of_person(caller, action)


def _of_person(caller: Caller, action: Action) -> str | None:
    level = action.least
    if level is Level.MACHINE_ONLY:
        return f"This is answered to the machine that it concerns, and {caller.name} is none."
    if _RANK[caller.role] < _NEEDS[level]:
        needed = Role.ADMIN if level is Level.MACHINE else Role(level.value)
        return f"This needs the role {needed}, and {caller.name} has the role {caller.role}."
    if caller.sites and action.scope is Scope.FLEET:
        return f"This concerns every site, and {caller.name} is limited to {_listed(caller.sites)}."
    return None


def may_see(caller: Caller, site: SiteName | str | None) -> bool:
    """Whether something of `site` is shown to the caller. What belongs to no site is shown to every caller."""
    return not caller.sites or site is None or site in caller.sites


def site_refusal(caller: Caller, sites: Collection[str]) -> str | None:
    """Why the caller may not change something at these sites, as a sentence; None when it may."""
    others = [site for site in sites if not may_see(caller, site)]
    if not others:
        return None
    return f"{caller.name} is limited to {_listed(caller.sites)} and may not act at {_listed(others)}."


def _listed(sites: Collection[str]) -> str:
    shown = sorted(sites)[:5]
    more = len(sites) - len(shown)
    return ("site " if len(sites) == 1 else "sites ") + ", ".join(shown) + (f" and {more} more" if more else "")
