"""Every error is returned as `application/problem+json`: what is wrong, which field, and what to do.

This module maps errors to statuses. An unrecognised error is a bug of ours: the caller gets an id to report to an
operator, never the details.
"""

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from homeport.errors import (
    BadAnswer,
    Conflict,
    HomeportError,
    InvalidInput,
    InvariantViolated,
    NotFound,
    PeerIncompatible,
    PermanentError,
    Refused,
    StorageFull,
    TooLarge,
    TooManyAttempts,
    TransientError,
    Unauthenticated,
    UnknownKind,
)
from homeport.log import get_log
from homeport.serving.bodies.problem import FieldProblem, ProblemBody
from homeport.vocabulary import DEPLOYMENT_NAME_PATTERN, NODE_ID_PATTERN, SITE_NAME_PATTERN

PROBLEM_JSON: Final = "application/problem+json"
REQUEST_ID: Final = "x-request-id"
_PLAIN: Final = (
    ("Field required", "is missing"),
    ("Extra inputs are not permitted", "is not a known field"),
    ("Input should be a valid dictionary or object to extract fields from", "must be an object"),
    ("Input should be a valid string", "must be a text"),
    *((f"{kind} should ", "must ") for kind in ("Input", "String", "List", "Dictionary", "Value")),
    ("Value error, ", ""),
)
"""How pydantic begins, and how we do."""

log = get_log("homeport.serving")

# The first match decides, so a subclass must come before its parent.
_STATUS: Final[tuple[tuple[type[HomeportError], int], ...]] = (
    (InvalidInput, 422),
    (NotFound, 404),
    (Conflict, 409),
    (TooLarge, 413),
    (Unauthenticated, 401),
    (Refused, 403),
    (TooManyAttempts, 429),
    (PeerIncompatible, 409),
    (StorageFull, 507),
    (TransientError, 503),
    (UnknownKind, 501),
    (BadAnswer, 502),
    (InvariantViolated, 500),
    (PermanentError, 422),
    (HomeportError, 500),
)
_FRAMEWORK_CODES: Final[Mapping[int, str]] = {
    400: "malformed-request",
    404: "no-such-route",
    405: "method-not-allowed",
    413: "too-large",
    415: "unsupported-media-type",
    421: "misdirected",
}

# Where Margo defines a problem type, its name is used.
_TYPES: Final[Mapping[str, str]] = {
    "not-authorized": "https://docs.margo.org/specification/problem-types#not-authorized",
}


class MalformedRequest(InvalidInput):
    """The request itself cannot be read."""

    code = "malformed-request"


def install(app: FastAPI) -> None:
    """Makes every error of `app`, the framework's own included, a problem document."""
    app.add_exception_handler(HomeportError, _on_our_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_framework_error)


def problem_of(error: HomeportError) -> ProblemBody:
    status = _status_of(error)
    if status == 500:
        return unexpected_problem()
    seconds = math.ceil(error.retry_after_seconds) if isinstance(error, TransientError) else None
    problems = error.problems if isinstance(error, InvalidInput) else ()
    return _problem(
        status,
        detail=str(error),
        code=str(error.code),
        hint=error.hint,
        retryable=seconds is not None,
        retryAfterSeconds=seconds,
        errors=[FieldProblem(field=p.field, message=p.message, path=p.path, line=p.line) for p in problems],
    )


def unexpected_problem() -> ProblemBody:
    return _problem(
        500,
        detail="Homeport could not answer because of an internal error.",
        code="internal",
        hint="The log of this role has the details under the request id of this answer.",
    )


def unavailable(detail: str, *, code: str, retry_after_seconds: float) -> ProblemBody:
    """A retry may succeed, here or elsewhere."""
    seconds = math.ceil(retry_after_seconds)
    return _problem(503, detail=detail, code=code, retryable=True, retryAfterSeconds=seconds)


def problem_response(problem: ProblemBody, headers: Mapping[str, str] | None = None) -> Response:
    extra = dict(headers or {})
    if problem.retryAfterSeconds is not None:
        extra["Retry-After"] = str(problem.retryAfterSeconds)
    if problem.status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="homeport"'
    body = problem.model_dump_json(exclude_none=True).encode()
    return Response(body, status_code=problem.status, media_type=PROBLEM_JSON, headers=extra)


def refusal(status: int, detail: str, *, code: str, hint: str | None = None) -> Response:
    """A response from below the routes, where exception handlers do not apply."""
    return problem_response(_problem(status, detail=detail, code=code, hint=hint))


def no_such_route(method: str, path: str, methods: Sequence[str]) -> Response:
    """The response to a request that is not in the access table; `methods` are those allowed at this path."""
    if method == "OPTIONS" and methods:
        return Response(headers={"Allow": ", ".join([*methods, "OPTIONS"])})
    status = 405 if methods else 404
    problem = _problem(
        status,
        detail=f"{method} is not possible at {path}." if methods else f"There is nothing at {path}.",
        code=_FRAMEWORK_CODES[status],
        hint="See /docs for what there is.",
        instance=path,
    )
    return problem_response(problem, {"Allow": ", ".join(methods)} if methods else None)


def _status_of(error: HomeportError) -> int:
    if isinstance(error, MalformedRequest):
        return 400
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def _problem(status: int, *, detail: str, code: str, **rest: Any) -> ProblemBody:
    return ProblemBody(
        type=_TYPES.get(code, f"urn:homeport:problem:{code}"),
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        **rest,
    )


async def _on_our_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HomeportError)
    problem = problem_of(error)
    request.scope.setdefault("state", {})["recorded"] = error.is_recorded
    if problem.status == 500:
        log.exception("request failed with an internal error", path=request.url.path, error=error)
    elif problem.status in (503, 507):
        log.warning("request rejected, temporarily unavailable", path=request.url.path, reason=str(error))
    return _named(request, problem)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(item["type"] == "json_invalid" for item in found):
        return _named(request, problem_of(_malformed(found)))
    if _body_is_not_json(request) and any(item["loc"][:1] == ("body",) for item in found):
        hint = "Send it with the header  Content-Type: application/json ."
        return _named(
            request, _problem(415, detail="The body is not JSON.", code="unsupported-media-type", hint=hint)
        )
    fields = [
        FieldProblem(field=_field_name(item["loc"]), message=_sentence(plain_message(item))) for item in found[:50]
    ]
    detail = "; ".join(f"{field.field}: {field.message}" if field.field else field.message for field in fields[:5])
    return _named(request, _problem(422, detail=detail, code=InvalidInput.code, errors=fields))


async def _on_framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    problem = _problem(
        status,
        detail=_sentence(str(error.detail)),
        code=_FRAMEWORK_CODES.get(status, "refused"),
        instance=request.url.path,
    )
    return problem_response(problem, error.headers)


def _named(request: Request, problem: ProblemBody) -> Response:
    return problem_response(problem.model_copy(update={"instance": request.url.path}))


def _malformed(found: Sequence[Any]) -> MalformedRequest:
    item = next(item for item in found if item["type"] == "json_invalid")
    place = item["loc"][-1]
    reason = str(item.get("ctx", {}).get("error", "it does not parse"))
    return MalformedRequest(f"The body is not JSON: {reason} at character {place}.")


def _body_is_not_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return not (kind == "application/json" or kind.endswith("+json"))


PATTERNS: Final[Mapping[str | None, str]] = {
    SITE_NAME_PATTERN: "must have small letters, digits and hyphens only, at most 63, and begin with a letter or a "
    "digit",
    DEPLOYMENT_NAME_PATTERN: "must have small letters, digits and hyphens only, at most 63, and begin and end with a "
    "letter or a digit",
    NODE_ID_PATTERN: "must have letters, digits, dots, hyphens and underscores only, at most 128, and begin with a "
    "letter or a digit",
}
"""What the patterns of names mean, in words."""


def plain_message(item: Mapping[str, Any]) -> str:
    """What pydantic says about a field, as the rest of a sentence that begins with its name."""
    described = PATTERNS.get(item.get("ctx", {}).get("pattern"))
    if described is not None:
        return described
    text = str(item["msg"])
    return next((ours + text[len(theirs) :] for theirs, ours in _PLAIN if text.startswith(theirs)), text)


def _field_name(location: Sequence[str | int]) -> str:
    """`("body", "sites", 0, "site_id")` becomes `sites[0].site_id`."""
    name = ""
    for part in location[1:]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name or "body"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
