"""Authorization middleware: decides whether the caller may perform the request, before any route is reached, for
framework routes, raw ASGI applications and mounted ones alike. A request without a row in the access table is
refused."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from homeport.core.access.actions import ActionTable, MatchedAction
from homeport.core.access.roles import refusal, site_refusal
from homeport.core.model.caller import Caller, CallerKind
from homeport.core.values.addresses import is_loopback
from homeport.errors import HomeportError, NotAuthorized, Unauthenticated
from homeport.serving.middleware.callers import ASK_HINT
from homeport.serving.middleware.guards import FOUND
from homeport.serving.problems import no_such_route, problem_of, problem_response

LOCAL_HINT: Final = "Run the command as the user who started Homeport, or log in:  homeport login URL"
TOKEN_HINT: Final = (
    "Send one as  Authorization: Bearer hp_… ; an administrator makes it with  homeport tokens create ."
)


def look_up(scope: Scope, table: ActionTable) -> MatchedAction | None:
    """The request's row of the table; looked up once, on first use."""
    state = scope.setdefault("state", {})
    if FOUND not in state:
        state[FOUND] = table.find(scope["method"], scope["path"])
    found: MatchedAction | None = state[FOUND]
    return found


class Authorization:
    """The innermost middleware: the caller is authenticated, and everything after it may be reached."""

    def __init__(self, app: ASGIApp, table: ActionTable) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # a handshake is a GET with a row of its own
            return
        found = look_up(scope, self._table)
        if found is None:
            answer = no_such_route(scope["method"], scope["path"], self._table.methods(scope["path"]))
            await answer(scope, receive, send)
            return
        try:
            check(scope["state"]["caller"], found)
        except HomeportError as error:
            problem = problem_of(error).model_copy(update={"instance": scope["path"]})
            await problem_response(problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def unauthenticated(caller: Caller) -> Unauthenticated:
    """The error for a caller without credentials."""
    hint = LOCAL_HINT if is_loopback(caller.address) else TOKEN_HINT
    return Unauthenticated("This needs an access token.", hint=hint)


def check(caller: Caller, found: MatchedAction) -> None:
    """Raises Unauthenticated or NotAuthorized unless the caller may do this, at the site in the path."""
    why = refusal(caller, found.action)
    if why is not None and caller.kind is CallerKind.ANONYMOUS:
        raise unauthenticated(caller)
    why = why or (None if found.site is None else site_refusal(caller, [found.site]))
    if why is not None:
        raise NotAuthorized(why, target=found.site or "", hint=ASK_HINT)
