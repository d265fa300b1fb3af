"""What a site tells central."""

from datetime import datetime
from typing import Any

from pydantic import Field

from homeport.serving.bodies.body import Body


class JoinSite(Body):
    epoch: str = Field(min_length=1, max_length=64)
    """One life of the site's database; report sequences begin anew with each."""
    software_version: str = Field(default="", max_length=100)


class JoinedBody(Body):
    site: str
    last_sequence: int


class ReportItem(Body):
    sequence: int = Field(ge=1)
    body: dict[str, Any]


class Reports(Body):
    epoch: str = Field(min_length=1, max_length=64)
    reports: list[ReportItem] = Field(max_length=5000)
    seen: dict[str, datetime] = Field(default={})


class ReportedBody(Body):
    last_sequence: int
