"""The body of an error response."""

from collections.abc import Sequence

from homeport.serving.bodies.body import Body


class FieldProblem(Body):
    field: str
    message: str
    path: str | None = None
    line: int | None = None


class ProblemBody(Body):
    """RFC 9457, as `application/problem+json`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    instance: str | None = None
    retryable: bool = False
    retryAfterSeconds: int | None = None  # noqa: N815 - Margo's name for it
    backoffStrategy: str | None = None  # noqa: N815 - and for this
    errors: Sequence[FieldProblem] = ()
