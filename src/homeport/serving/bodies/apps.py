"""Apps of the catalog."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field

from homeport.serving.bodies.body import Body


class AddApps(Body):
    """Adds every app below `repository` that the filters leave. `repository` is a Git URL or a local path."""

    repository: str = Field(min_length=1, max_length=2000)
    branch: str | None = Field(default=None, max_length=200)
    category: str | None = Field(default=None, max_length=200)
    app_name: str | None = Field(default=None, max_length=200)
    version: str | None = Field(default=None, max_length=200)


class ComponentBody(Body):
    name: str
    properties: Mapping[str, Any]


class ProfileBody(Body):
    id: str
    type: str
    description: str
    device_constraints: Mapping[str, Any] | None
    components: Sequence[ComponentBody]


class AppBody(Body):
    id: str
    category: str
    app_name: str
    version: str
    margo_id: str
    name: str
    vendor: str
    description: str
    tags: Sequence[str]
    repository: str
    commit: str | None
    added_at: datetime
    added_by: str


class AppDetailBody(AppBody):
    profiles: Sequence[ProfileBody]
    parameters: Mapping[str, Any]
    configuration: Mapping[str, Any] | None


class AppsBody(Body):
    apps: Sequence[AppBody]


class AppsAddedBody(Body):
    added: Sequence[AppBody]
    unchanged: Sequence[AppBody]
    """Already in the catalog with the same content."""
