"""The caller of a route. Access was decided before any route was reached (`authorization`); a route only reads it:

async def remove_node(caller: CallerOf, …)
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request

from homeport.core.access.roles import site_refusal
from homeport.core.model.caller import Caller
from homeport.errors import NotAuthorized

ASK_HINT: Final = "Ask an administrator for a token with this right."
PLAN: Final = "plan"
DETAIL: Final = "audit_detail"
"""Where a route stores further details for the audit trail."""
ACTION: Final = "audit_action"
"""Where a route stores the name of the action, for the audit trail, where the request alone does not tell it."""


def caller_of(request: Request) -> Caller:
    known = request.scope["state"]["caller"]
    assert isinstance(known, Caller), "no route is reached without a caller"
    return known


CallerOf = Annotated[Caller, Depends(caller_of)]


def _plan_only(
    request: Request,
    plan: Annotated[bool, Query(description="Answer what would happen, and change nothing.")] = False,
) -> bool:
    request.scope["state"][PLAN] = plan
    return plan


PlanOnly = Annotated[bool, Depends(_plan_only)]
"""Whether only a plan is requested; the audit trail then holds refusals only."""


def _remove_data(
    request: Request,
    remove_data: Annotated[bool, Query(description="Remove its data volumes too: what they hold is lost.")] = False,
) -> bool:
    if remove_data:
        note_detail(request, remove_data=True)
    return remove_data


RemoveData = Annotated[bool, Depends(_remove_data)]
"""Whether a deployment's data is deleted with it; the audit trail learns it from here."""


def note_detail(request: Request, **detail: Any) -> None:
    """Adds details to the audit entry of this request. Never a secret, a token or a key."""
    request.scope["state"].setdefault(DETAIL, {}).update(detail)


def check_sites(caller: Caller, sites: Sequence[str]) -> None:
    """Raises NotAuthorized unless the caller may act at all of these sites."""
    why = site_refusal(caller, sites)
    if why is not None:
        raise NotAuthorized(why, target=", ".join(sorted(sites)[:5]), hint=ASK_HINT)
