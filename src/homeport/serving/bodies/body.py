"""The base of every HTTP body. Field names use the same terms as everywhere else.

Requests refuse unknown fields, so that a typing error is reported and not ignored. A body's validator is built on
first use: a process uses few of them, and building all would delay its start.
"""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from homeport.vocabulary import NODE_ID_PATTERN, SITE_NAME_PATTERN
from homeport.wire.values import FIRST, LAST

SiteNameText = Annotated[str, StringConstraints(pattern=SITE_NAME_PATTERN)]
NodeIdText = Annotated[str, StringConstraints(pattern=NODE_ID_PATTERN)]


def _in_range(moment: datetime) -> datetime:
    """In UTC, and a time that every database, time zone and addition of days can express."""
    at = moment.replace(tzinfo=moment.tzinfo or UTC)
    try:
        at = at.astimezone(UTC)
    except OverflowError:
        at = FIRST.replace(year=1)
    if not FIRST <= at <= LAST:
        raise ValueError(f"must be from {FIRST.year} to {LAST.year - 1}")
    return at


AnyMoment = Annotated[datetime, AfterValidator(_in_range)]
"""A time; without a zone it is UTC."""
Moment = Annotated[AwareDatetime, AfterValidator(_in_range)]
"""A time with its zone."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class FailureBody(Body):
    code: str
    message: str


class PageBody(Body):
    """A part of a list."""

    next: str | None = Field(
        default=None, description="Give it as `cursor` to get what follows; null where this is the end of the list."
    )


class Message(BaseModel):
    """Sent by another role, which may be of a newer version: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)
