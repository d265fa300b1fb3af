"""Who may do what: one table of actions, each with the least role that may do it.

A viewer reads, an operator also changes what runs, an administrator also decides who and what belongs to the
fleet. Machines have no role: they may do what machines do, and only for themselves. What is open is answered to
anybody who can reach us.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.vocabulary import SiteName


class Level(StrEnum):
    """What it takes. Each role has all that the ones before it have."""

    OPEN = "open"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    MACHINE = "machine"
    """A machine for itself; an administrator too, for a site may be asked after by hand."""


# fmt: off
ACTIONS: Final[Mapping[str, Level]] = MappingProxyType({
    "health.read":             Level.OPEN,      # supervisors have no token
    "identity.bundle":         Level.OPEN,      # what a machine needs before it can trust us
    "enrolment.join":          Level.OPEN,      # the join token or the proof of a known key is in the body
    "docs.read":               Level.VIEWER,    # a stranger need not learn what can be asked
    "metrics.read":            Level.VIEWER,    # counts and routes say how large and how busy a fleet is
    "overview.read":           Level.VIEWER,
    "apps.read":               Level.VIEWER,
    "deployments.read":        Level.VIEWER,
    "events.read":             Level.VIEWER,
    "sites.read":              Level.VIEWER,
    "nodes.read":              Level.VIEWER,
    "rollouts.read":           Level.VIEWER,
    "plan.read":               Level.VIEWER,
    "tokens.self":             Level.VIEWER,    # whose token is this: login asks
    "apps.add":                Level.OPERATOR,
    "apps.remove":             Level.OPERATOR,
    "deployments.create":      Level.OPERATOR,
    "deployments.delete":      Level.OPERATOR,
    "nodes.drain":             Level.OPERATOR,
    "sites.hold":              Level.OPERATOR,
    "deployments.rollback":    Level.OPERATOR,
    "rollouts.steer":          Level.OPERATOR,
    "sites.label":             Level.OPERATOR,  # a label decides what a site gets
    "git.nudge":               Level.OPERATOR,
    "secrets.list":            Level.OPERATOR,  # names only: whoever deploys must know what can be referenced
    "secrets.set":             Level.ADMIN,
    "secrets.remove":          Level.ADMIN,
    "secrets.rotate-key":      Level.ADMIN,
    "nodes.remove":            Level.ADMIN,
    "nodes.approve":           Level.ADMIN,
    "nodes.join-command":      Level.ADMIN,
    "sites.remove":            Level.ADMIN,
    "sites.approve":           Level.ADMIN,
    "sites.join-command":      Level.ADMIN,
    "identity.read":           Level.ADMIN,
    "identity.approve":        Level.ADMIN,
    "identity.issue":          Level.ADMIN,
    "identity.remove":         Level.ADMIN,
    "identity.rotate":         Level.ADMIN,
    "tokens.read":             Level.ADMIN,
    "tokens.create":           Level.ADMIN,
    "tokens.revoke":           Level.ADMIN,
    "audit.read":              Level.ADMIN,     # it names people and addresses
    "sites.join":              Level.MACHINE,
    "sites.report":            Level.MACHINE,
    "sites.watch":             Level.MACHINE,
    "sites.secrets":           Level.MACHINE,
    "sites.renew":             Level.MACHINE,
})
# fmt: on

FLEET_WIDE: Final = frozenset(
    ["apps.add", "apps.remove", "git.nudge", "audit.read", "metrics.read", "secrets.rotate-key"]
    + [action for action in ACTIONS if action.startswith(("tokens.", "identity."))]
) - {"tokens.self", "identity.bundle"}
"""Actions that touch every site, so a caller who is limited to some may not do them."""

_RANK: Final = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}
_NEEDS: Final = {Level.VIEWER: 1, Level.OPERATOR: 2, Level.ADMIN: 3, Level.MACHINE: 3}


def is_open(action: str) -> bool:
    return ACTIONS[action] is Level.OPEN


def refusal(caller: Caller, action: str) -> str | None:
    """Why the caller may not do it, as a sentence; None when it may."""
    level = ACTIONS[action]
    if level is Level.OPEN:
        return None
    if caller.kind is CallerKind.ANONYMOUS:
        return "This needs an access token."
    if caller.kind is CallerKind.MACHINE:
        return None if level is Level.MACHINE else f"{caller.name} is a machine and may not do this."
    if _RANK[caller.role] < _NEEDS[level]:
        needed = Role.ADMIN if level is Level.MACHINE else Role(level.value)
        return f"This needs the role {needed}, and {caller.name} has the role {caller.role}."
    if caller.sites and action in FLEET_WIDE:
        return f"This concerns every site, and {caller.name} is limited to {_listed(caller.sites)}."
    return None


def may_see(caller: Caller, site: SiteName | str | None) -> bool:
    """Whether something of `site` is shown to the caller. What belongs to no site is shown to everybody."""
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
