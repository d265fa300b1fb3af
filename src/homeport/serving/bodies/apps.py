"""Apps of the catalog."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import AliasChoices, Field

from homeport.serving.bodies.body import Body, PageBody

DESCRIPTION_LENGTH_MAX: Final = 1024 * 1024


class AddApps(Body):
    """Adds every app below `repository` that passes the filters; or the one app in `description`, as `app_name` in
    `category`."""

    repository: str | None = Field(
        default=None, min_length=1, max_length=2000, validation_alias=AliasChoices("repository", "repo_url")
    )
    """A Git URL or a local path."""
    description: str | None = Field(default=None, min_length=1, max_length=DESCRIPTION_LENGTH_MAX)
    """A margo.yaml. Without `version`, equal content keeps the version it has and other content gets the next one."""
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


class AppsBody(PageBody):
    apps: Sequence[AppBody]


class AppsAddedBody(Body):
    added: Sequence[AppBody]
    unchanged: Sequence[AppBody]
    """Already in the catalog with the same content."""
