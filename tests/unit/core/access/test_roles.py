"""The table of actions: what each role may do, and how sites limit it."""

import pytest

from homeport.core.access.roles import ACTIONS, FLEET_WIDE, Level, is_open, may_see, refusal, site_refusal
from homeport.core.model.caller import Caller, CallerKind, Role
from homeport.vocabulary import SiteName

RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}
NEEDED = {Level.OPEN: 0, Level.VIEWER: 1, Level.OPERATOR: 2, Level.ADMIN: 3, Level.MACHINE: 3}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_role_may_do_what_its_rank_allows_and_nothing_more(action: str, role: Role) -> None:
    why = refusal(Caller("somebody", role, kind=CallerKind.TOKEN), action)
    assert (why is None) == (RANK[role] >= NEEDED[ACTIONS[action]])
    if why is not None:
        assert "somebody has the role" in why


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_nobody_in_particular_may_do_only_what_is_open(action: str) -> None:
    nobody = Caller("anonymous", Role.VIEWER, kind=CallerKind.ANONYMOUS)
    assert (refusal(nobody, action) is None) == is_open(action)


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_machine_does_what_machines_do_whatever_its_role_says(action: str) -> None:
    machine = Caller("home", Role.ADMIN, sites=(SiteName("home"),), kind=CallerKind.MACHINE)
    assert (refusal(machine, action) is None) == (ACTIONS[action] in {Level.OPEN, Level.MACHINE})


@pytest.mark.parametrize("action", sorted(FLEET_WIDE))
def test_an_administrator_of_one_site_does_nothing_that_touches_all(action: str) -> None:
    limited = Caller("anna", Role.ADMIN, sites=(SiteName("home"),), kind=CallerKind.TOKEN)
    assert "limited to site home" in str(refusal(limited, action))


def test_a_limited_caller_sees_and_changes_its_own_sites_only() -> None:
    limited = Caller("anna", Role.OPERATOR, sites=(SiteName("home"), SiteName("line-7")))
    assert [site for site in ("home", "line-7", "other", None) if may_see(limited, site)] == ["home", "line-7", None]
    assert site_refusal(limited, ["home", "line-7"]) is None
    assert site_refusal(limited, ["home", "other"]) == (
        "anna is limited to sites home, line-7 and may not act at site other."
    )
    assert site_refusal(Caller("bob", Role.OPERATOR), ["anywhere"]) is None


def test_managing_people_and_machines_is_for_administrators_alone() -> None:
    kinds = ("tokens.", "identity.", "audit.")
    managing = [name for name in ACTIONS if name.startswith(kinds) or name.endswith((".approve", ".join-command"))]
    left = {name for name in managing if ACTIONS[name] is not Level.ADMIN}
    assert left == {"tokens.self", "identity.bundle"}
