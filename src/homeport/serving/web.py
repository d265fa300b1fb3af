"""Builds a role's web application: routes, guards, problem documents, OpenAPI and its page."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from homeport import __version__
from homeport.core.access.actions import ActionTable
from homeport.identity.audit import Auditor
from homeport.serving.bodies.problem import ProblemBody
from homeport.serving.capability import Routes, include
from homeport.serving.middleware.audit import Auditing
from homeport.serving.middleware.authentication import Authentication, Authenticator
from homeport.serving.middleware.authorization import Authorization
from homeport.serving.middleware.direct import Direct
from homeport.serving.middleware.error_shapes import ErrorShapes
from homeport.serving.middleware.guards import Guard, GuardSettings
from homeport.serving.middleware.shortcuts import Shortcuts
from homeport.serving.middleware.tracing import TraceSettings, Tracing
from homeport.serving.problems import PROBLEM_JSON, install
from homeport.serving.routes.docs import docs_routes
from homeport.serving.routes.health import Metrics
from homeport.serving.routing import LateRoute, RawRoute
from homeport.serving.server.connections import Shortcut

_EVERYWHERE: Final = (400, 401, 403, 421, 422, 429, 431, 500, 503)
_WITH_BODY: Final = (413, 415)
_ENVELOPE: Final = {
    "type": "object",
    "required": ["code"],
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "retriable": {"type": "boolean"},
        "retry_after_ms": {"type": ["integer", "null"]},
    },
}
_SAYS: Final = {
    400: "The request cannot be read, or has a token in its URL; below /v2 also: a field is wrong.",
    401: "It needs an access token, or the one given is not valid.",
    403: "Not allowed, or a page of another origin asked.",
    404: "It does not exist.",
    409: "It conflicts with what is there, or a name means several things.",
    413: "The body, or a file it names, is larger than what is accepted.",
    415: "The body is not JSON.",
    421: "The Host header does not name this server.",
    422: "A field is wrong; `errors` names it, and file and line for YAML.",
    429: "Too many wrong access tokens; `Retry-After` says when to try again.",
    431: "The address or the headers are longer than what is accepted.",
    500: "An internal error of Homeport.",
    503: "It cannot be done now; `Retry-After` says when to try again.",
}


def build_web(
    *,
    role: str,
    description: str,
    routes: Sequence[Routes],
    metrics: Metrics,
    guards: GuardSettings,
    auditor: Auditor,
    authenticator: Authenticator,
    tracing: TraceSettings | None = None,
    here: str | None = None,
) -> "Web":
    """`here` is the site that serves this; None at central. Raises ValueError where a route has no action."""
    app = Web(
        title=f"Homeport {role}",
        version=__version__,
        description=description,
        docs_url=None,
        redoc_url=None,
        # `docs_routes` serves it, with a row in the table of actions.
        openapi_url=None,
        redirect_slashes=False,
    )
    install(app)
    brought = [*routes, docs_routes(lambda: _openapi(app))]
    table = ActionTable((each.actions for each in brought), here=here)
    include(app, brought, table)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    # The last one added runs first.
    app.add_middleware(Direct, routes=app.routes, table=table)
    if tracing is not None:
        app.add_middleware(Tracing, settings=tracing, table=table)
    app.add_middleware(Authorization, table=table)
    app.add_middleware(Authentication, authenticator=authenticator, table=table)
    app.add_middleware(Guard, settings=guards, on_answer=metrics.answered)
    app.add_middleware(Auditing, auditor=auditor, table=table)
    shapes = {prefix: shape for each in brought for prefix, shape in each.error_shapes.items()}
    if shapes:
        app.add_middleware(ErrorShapes, shapes=shapes)
    handlers = {row: handler for each in brought for row, handler in each.shortcuts.items()}
    if handlers:
        app.shortcut = Shortcuts(
            handlers,
            table,
            authenticator=authenticator,
            guards=guards,
            on_answer=metrics.answered,
            shapes=shapes,
        )
    return app


class Web(FastAPI):
    """Our middleware directly, and the framework's own layers only around the framework's routes: what it puts around
    everything (a last handler of errors, telemetry) is `Guard`'s and `Tracing`'s work here."""

    shortcut: Shortcut | None = None
    """For the server: what does not have to reach the application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers)
        for kind, arguments, options in reversed(self.user_middleware):
            app = kind(app, *arguments, **options)
        return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with every error response as a problem document."""
    if app.openapi_schema is None:
        for route in app.routes:
            if isinstance(route, LateRoute):
                route.complete()
        document = get_openapi(
            title=app.title,
            version=app.version,
            openapi_version="3.1.0",
            description=app.description,
            routes=app.routes,
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}))
        schemas["ProblemBody"] = problem
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _document_problems(operation, has_envelope=path.startswith("/v2/"))
        for route in app.routes:
            if isinstance(route, RawRoute):
                _document_raw(document, route)
        app.openapi_schema = document
    return app.openapi_schema


def _document_raw(document: dict[str, Any], route: RawRoute) -> None:
    """A raw route says itself how it answers; schemas under `$defs` become components."""
    operation = dict(route.operation)
    document["components"]["schemas"].update(operation.pop("$defs", {}))
    path = document["paths"].setdefault(route.path.replace(":path}", "}"), {})
    for method in sorted(route.methods or ()):
        path[method.lower()] = {**operation, "operationId": f"{operation['operationId']}_{method.lower()}"}


def _document_problems(operation: dict[str, Any], *, has_envelope: bool) -> None:
    """Below /v2 errors have the envelope of its own contract, and a wrong field is 400 there (`ErrorShapes`)."""
    responses = operation["responses"]
    for status in (*_EVERYWHERE, *(_WITH_BODY if "requestBody" in operation else ())):
        responses.setdefault(str(status), {})
    if has_envelope:
        del responses["422"]
    for status, response in responses.items():
        if int(status) < 400 or "ReadyBody" in str(response):
            continue
        response["description"] = _SAYS.get(int(status), HTTPStatus(int(status)).phrase)
        response["content"] = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
        if has_envelope:
            response["content"]["application/json"] = {"schema": _ENVELOPE}
        response["headers"] = {"X-Request-Id": {"schema": {"type": "string"}}}
        if has_envelope:
            response["headers"]["X-Correlation-Id"] = {"schema": {"type": "string"}}
        if int(status) in {429, 503}:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}}
