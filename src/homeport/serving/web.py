"""Puts a role's web application together: routes, guards, problem documents, OpenAPI and its page."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route

from homeport import __version__
from homeport.core.access.roles import is_open
from homeport.fleet.audit import Auditor
from homeport.serving.auditing import Auditing
from homeport.serving.authentication import Authentication, Gate, OpenRoute
from homeport.serving.bodies.problem import ProblemBody
from homeport.serving.callers import declared_action
from homeport.serving.docs import docs_router
from homeport.serving.guards import Guard, GuardSettings
from homeport.serving.health import Metrics
from homeport.serving.problems import PROBLEM_JSON, install
from homeport.serving.tracing import TraceSettings, Tracing

_EVERYWHERE: Final = (400, 401, 403, 421, 422, 429, 431, 500, 503)
_WITH_BODY: Final = (413, 415)
_SAYS: Final = {
    400: "The request cannot be read, or has a token in its URL.",
    401: "It needs an access token, or the one given is not valid.",
    403: "Not allowed, or a page of another origin asks.",
    404: "There is no such thing.",
    409: "It conflicts with what is there, or a name means several things.",
    413: "The body, or a file it names, is larger than what is accepted.",
    415: "The body is not JSON.",
    421: "The Host header names somebody else.",
    422: "A field is wrong; `errors` names it, and file and line for YAML.",
    429: "Too many wrong access tokens; `Retry-After` says when to try again.",
    431: "The address or the headers are longer than what is accepted.",
    500: "A fault of Homeport's own.",
    503: "It cannot be done now; `Retry-After` says when to try again.",
}


def build_web(
    *,
    role: str,
    description: str,
    routers: Sequence[APIRouter],
    metrics: Metrics,
    guards: GuardSettings,
    auditor: Auditor | None = None,
    gate: Gate | None = None,
    tracing: TraceSettings | None = None,
) -> FastAPI:
    """Without a gate, being on this machine is what makes a caller."""
    app = FastAPI(
        title=f"Homeport {role}",
        version=__version__,
        description=description,
        docs_url=None,
        redoc_url=None,
        # Its own route would be answered without an action; `docs_router` has one that declares it.
        openapi_url=None,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
    )
    install(app)
    routers = [*routers, docs_router(lambda: _openapi(app))]
    for router in routers:
        app.include_router(router)
    # An application shows its own routes only, not those of the routers it includes; so routers are never nested.
    routes = [*app.routes, *(route for router in routers for route in router.routes)]
    nested = [route for router in routers for route in router.routes if not isinstance(route, Route)]
    assert not nested, "routes of a nested router would be served without the action they declare"
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    if tracing is not None:
        app.add_middleware(Tracing, settings=tracing, routes=routes)
    if gate is not None:
        app.add_middleware(Authentication, gate=gate, open_routes=open_routes(routes))
    app.add_middleware(Guard, settings=guards, on_answer=metrics.answered)
    if auditor is not None:
        app.add_middleware(Auditing, auditor=auditor, routes=routes)
    return app


def open_routes(routes: Sequence[BaseRoute]) -> list[OpenRoute]:
    """Those that are answered to anybody: they declare an open action."""
    found = []
    for route in routes:
        action = declared_action(route.dependant) if isinstance(route, APIRoute) else None
        if isinstance(route, APIRoute) and action and is_open(action):
            found.append((frozenset(route.methods or ()), route.path_regex))
    return found


def _operation_id(route: APIRoute) -> str:
    return route.name


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with every way a request can fail added as the problem document it is."""
    if app.openapi_schema is None:
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
        for operations in document["paths"].values():
            for operation in operations.values():
                _document_problems(operation)
        app.openapi_schema = document
    return app.openapi_schema


def _document_problems(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    for status in (*_EVERYWHERE, *(_WITH_BODY if "requestBody" in operation else ())):
        responses.setdefault(str(status), {})
    for status, response in responses.items():
        if int(status) < 400 or "ReadyBody" in str(response):
            continue
        response["description"] = _SAYS.get(int(status), HTTPStatus(int(status)).phrase)
        response["content"] = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
        response["headers"] = {"X-Request-Id": {"schema": {"type": "string"}}}
        if int(status) in {429, 503}:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}}
