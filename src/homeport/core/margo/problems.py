"""Margo's registered problem types (RFC 9457), and the retry hints that belong to each status."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

SPACE: Final = "https://docs.margo.org/specification/problem-types#"
# fmt: off
STATUS_OF: Final[Mapping[str, int]] = {
    "invalid-request":                  400,   # the body cannot be parsed
    "semantic-error":                   422,   # it parses, and breaks a rule
    "not-authorized":                   403,
    "gateway-not-found":                404,   # a child was reported before its gateway
    "device-not-found":                 404,
    "invalid-bundle":                   404,
    "deployment-not-found":             404,
    "server-cannot-generate-response":  406,
    "discovery-document-not-found":     404,
    "spiffe-bundle-not-found":          404,
}
TITLE_OF: Final[Mapping[str, str]] = {
    "invalid-request":                  "Invalid request",
    "semantic-error":                   "Semantic error",
    "not-authorized":                   "Not authorized",
    "gateway-not-found":                "Gateway not found",
    "device-not-found":                 "Device not found",
    "invalid-bundle":                   "Invalid bundle",
    "deployment-not-found":             "Deployment not found",
    "server-cannot-generate-response":  "Server cannot generate response",
    "discovery-document-not-found":     "Discovery document not found",
    "spiffe-bundle-not-found":          "SPIFFE bundle not found",
}
# fmt: on
TITLES: Final[Mapping[int, str]] = {
    # of `about:blank`, the phrases of HTTP
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
BACKOFF: Final = frozenset({429, 500, 503})
RETRY_AFTER_SECONDS: Final = 5


def problem(
    name: str | int,
    detail: str,
    *,
    instance: str = "",
    errors: Sequence[Mapping[str, str]] = (),
    retry_after_seconds: int = RETRY_AFTER_SECONDS,
) -> dict[str, Any]:
    """`name` is a registered type, or a status that has none."""
    status = name if isinstance(name, int) else STATUS_OF[name]
    retryable = status in BACKOFF
    body: dict[str, Any] = {
        "type": "about:blank" if isinstance(name, int) else SPACE + name,
        "title": TITLES[status] if isinstance(name, int) else TITLE_OF[name],
        "status": status,
        "detail": detail,
        "retryable": retryable,
        "backoffStrategy": "exponential" if retryable else "none",
    }
    if instance:
        body["instance"] = instance
    if retryable:
        body["retryAfterSeconds"] = retry_after_seconds
    if errors:
        body["errors"] = list(errors)
    return body
