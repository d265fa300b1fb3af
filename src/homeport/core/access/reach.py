"""Who may have a role connect to addresses that are not on the internet.

A role is in a network where much trusts every peer inside: machines' own ports, cloud metadata, routers. Whoever runs
the fleet may name a server at home; others could learn from the answer, or the error alone, what is there.
"""

from homeport.core.model.caller import Caller, CallerKind, Role


def may_reach_private(caller: Caller) -> bool:
    return caller.role is Role.ADMIN or caller.kind is CallerKind.LOCAL
