"""Who may do what: each level for each kind of caller, and how sites limit it."""

import pytest

from homeport.core.access.actions import Action, Audit, Level, Scope
from homeport.core.access.roles import may_see, refusal, site_refusal
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.vocabulary import SiteName

RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}
NEEDED = {
    Level.OPEN: 0,
    Level.KNOWN: 1,
    Level.VIEWER: 1,
    Level.OPERATOR: 2,
    Level.ADMIN: 3,
    Level.MACHINE: 3,
    Level.MACHINE_ONLY: 9,
}


def action(level: Level, scope: Scope = Scope.NONE) -> Action:
    return Action("things.do", level, scope, Audit.NONE)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("level", list(Level))
def test_a_role_may_do_what_its_rank_allows_and_nothing_more(level: Level, role: Role) -> None:
    why = refusal(Caller("anna", role, kind=CallerKind.TOKEN), action(level))
    assert (why is None) == (RANK[role] >= NEEDED[level])
    if why is not None and level is not Level.MACHINE_ONLY:
        assert "anna has the role" in why


@pytest.mark.parametrize("level", list(Level))
def test_an_anonymous_caller_may_do_only_what_is_open(level: Level) -> None:
    nobody = Caller("anonymous", Role.VIEWER, kind=CallerKind.ANONYMOUS)
    assert (refusal(nobody, action(level)) is None) == (level is Level.OPEN)


@pytest.mark.parametrize("level", list(Level))
def test_a_machine_does_what_machines_do_whatever_its_role_says(level: Level) -> None:
    machine = Caller("home", Role.ADMIN, sites=(SiteName("home"),), kind=CallerKind.MACHINE)
    for_machines = {Level.OPEN, Level.KNOWN, Level.MACHINE, Level.MACHINE_ONLY}
    assert (refusal(machine, action(level)) is None) == (level in for_machines)


@pytest.mark.parametrize("kind", [CallerKind.LOCAL, CallerKind.TOKEN])
def test_no_person_of_whatever_role_may_do_what_is_for_the_machine_alone(kind: CallerKind) -> None:
    admin = Caller("anna", Role.ADMIN, kind=kind)
    assert "is none" in str(refusal(admin, action(Level.MACHINE_ONLY)))


@pytest.mark.parametrize("scope", list(Scope))
def test_an_administrator_of_one_site_does_nothing_that_touches_all(scope: Scope) -> None:
    limited = Caller("anna", Role.ADMIN, sites=(SiteName("home"),), kind=CallerKind.TOKEN)
    why = refusal(limited, action(Level.ADMIN, scope))
    assert (why is not None and "limited to site home" in why) == (scope is Scope.FLEET)


def test_a_limited_caller_sees_and_changes_its_own_sites_only() -> None:
    limited = Caller("anna", Role.OPERATOR, sites=(SiteName("home"), SiteName("line-7")))
    assert [site for site in ("home", "line-7", "other", None) if may_see(limited, site)] == ["home", "line-7", None]
    assert site_refusal(limited, ["home", "line-7"]) is None
    assert site_refusal(limited, ["home", "other"]) == (
        "anna is limited to sites home, line-7 and may not act at site other."
    )
    assert site_refusal(Caller("bob", Role.OPERATOR), ["anywhere"]) is None
