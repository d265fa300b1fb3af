"""What every HTTP body is, and how a refusal is told. Field names are the same words as everywhere else.

Requests refuse unknown fields, so that a typing error is answered and not ignored.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from homeport.vocabulary import NODE_ID_PATTERN, SITE_NAME_PATTERN

SiteNameText = Annotated[str, StringConstraints(pattern=SITE_NAME_PATTERN)]
NodeIdText = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


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
    errors: list[FieldProblem] = []
