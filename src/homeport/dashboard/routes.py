"""The pages of the dashboard, and how a browser logs in and out."""

from datetime import datetime
from typing import Final

from fastapi import Request, Response
from pydantic import Field, model_validator

from homeport.core.access.actions import Action, Actions, Audit, Level, Scope
from homeport.dashboard.login_codes import SECONDS, LoginCodes
from homeport.dashboard.static_files import INDEX, WORKER, WORKER_POLICY, StaticFile, load
from homeport.errors import InvalidInput, NotFound, Problem
from homeport.ports import Clock
from homeport.serving.bodies.body import Body
from homeport.serving.capability import Routes
from homeport.serving.middleware import session_cookie
from homeport.serving.middleware.authentication import Authenticator
from homeport.serving.middleware.callers import CallerOf, note_detail
from homeport.serving.routing import Router

PAGES: Final = (
    *("login", "map", "sites", "nodes", "deployments", "deploy", "rollouts", "catalog", "inference", "jobs"),
    *("pipelines", "logs", "events", "audit", "settings"),
)
DOCUMENT_HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
# The pages hold nothing of the fleet: what they show, they ask the API for.
_PAGE: Final = Action("dashboard.page", Level.OPEN, Scope.NONE, Audit.NONE)
# fmt: off
ACTIONS: Final[Actions] = {
    ("GET", "/"): _PAGE,
    **{("GET", f"/{page}"): _PAGE for page in PAGES},
    **{("GET", f"/{page}/{{path:path}}"): _PAGE for page in PAGES},
    ("GET", "/_app/{path:path}"): _PAGE,
    ("GET", "/favicon.svg"): _PAGE,
    ("GET", f"/{WORKER}"): _PAGE,
    ("POST", "/api/v1/logins"): Action("logins.create", Level.OPEN, Scope.NONE, Audit.WAIT),
    ("DELETE", "/api/v1/logins"): Action("logins.end", Level.OPEN, Scope.NONE, Audit.NONE),
    ("POST", "/api/v1/logins/codes"): Action("logins.code", Level.VIEWER, Scope.NONE, Audit.WAIT),
}
# fmt: on


class LogIn(Body):
    token: str | None = Field(default=None, min_length=1, max_length=500, description="An access token.")
    code: str | None = Field(default=None, min_length=1, max_length=100, description="Of `homeport dashboard`.")

    @model_validator(mode="after")
    def _one_of_them(self) -> "LogIn":
        if (self.token is None) == (self.code is None):
            raise ValueError("give either a token or a code")
        return self


class LoginBody(Body):
    key: str = Field(description="To be sent as X-Homeport-Session with every request; shown this once.")
    name: str
    role: str
    sites: list[str]
    expires_at: datetime


class LoginCodeBody(Body):
    code: str = Field(description="For /login#code=…; works once.")
    seconds: float


def page_routes() -> Router:
    router = Router(tags=["dashboard"])

    async def page(request: Request) -> Response:
        static = load()
        answer = _answer(request, static.pages[INDEX])
        answer.headers.update(DOCUMENT_HEADERS)
        answer.headers["Content-Security-Policy"] = static.policy
        return answer

    async def asset(request: Request) -> Response:
        found = load().pages.get(request.url.path.lstrip("/"))
        if found is None:
            raise NotFound("There is no such file.", hint="Reload the page: Homeport was updated.")
        return _answer(request, found)

    async def worker(request: Request) -> Response:
        answer = await asset(request)
        answer.headers["Content-Security-Policy"] = WORKER_POLICY
        return answer

    router.add_api_route("/", page, methods=["GET"], include_in_schema=False, name="page")
    for name in PAGES:
        router.add_api_route(f"/{name}", page, methods=["GET"], include_in_schema=False, name=f"page_{name}")
        router.add_api_route(
            f"/{name}/{{path:path}}", page, methods=["GET"], include_in_schema=False, name=f"page_below_{name}"
        )
    router.add_api_route("/_app/{path:path}", asset, methods=["GET"], include_in_schema=False, name="asset")
    router.add_api_route("/favicon.svg", asset, methods=["GET"], include_in_schema=False, name="icon")
    router.add_api_route(f"/{WORKER}", worker, methods=["GET"], include_in_schema=False, name="worker")
    return router


def dashboard_routes(authenticator: Authenticator, clock: Clock) -> Routes:
    router, codes = page_routes(), LoginCodes()

    @router.post("/api/v1/logins", summary="Log a browser in", status_code=201)
    async def log_in(request: Request, body: LogIn, response: Response) -> LoginBody:
        """Sets a cookie that is valid together with the returned key."""
        token = body.token if body.code is None else codes.redeem(body.code, clock.monotonic())
        assert token is not None, "the body has one of them"
        address = request.client.host if request.client else ""
        caller = await authenticator.authenticate({"authorization": f"Bearer {token}"}, address, None)
        note_detail(request, name=caller.name, role=caller.role.value)
        session = session_cookie.begin(token, clock.now())
        response.headers["Set-Cookie"] = session_cookie.set_cookie(session, is_tls=request.url.scheme == "https")
        response.headers["Cache-Control"] = "no-store"
        return LoginBody(
            key=session.key,
            name=caller.name,
            role=caller.role.value,
            sites=list(caller.sites),
            expires_at=session.expires_at,
        )

    @router.delete("/api/v1/logins", summary="Log this browser out", status_code=204, response_class=Response)
    async def log_out(request: Request) -> Response:
        cookie = session_cookie.clear_cookie(is_tls=request.url.scheme == "https")
        return Response(status_code=204, headers={"Set-Cookie": cookie})

    @router.post("/api/v1/logins/codes", summary="A link that logs a browser in, once", status_code=201)
    async def create_login_code(caller: CallerOf, request: Request, response: Response) -> LoginCodeBody:
        scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
        if scheme.lower() != "bearer":
            problem = Problem("Authorization", "It has to carry the access token that the browser is to use.")
            raise InvalidInput("There is no access token to log in with.", problems=(problem,))
        response.headers["Cache-Control"] = "no-store"
        return LoginCodeBody(code=codes.create(token.strip(), clock.monotonic()), seconds=SECONDS)

    return Routes(router, ACTIONS)


def _answer(request: Request, found: StaticFile) -> Response:
    caching = {"ETag": found.etag, "Cache-Control": found.caching, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=caching)
    if found.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            found.compressed, media_type=found.media_type, headers={**caching, "Content-Encoding": "gzip"}
        )
    return Response(found.content, media_type=found.media_type, headers=caching)
