"""Events."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from homeport.serving.bodies.body import Body


class EventBody(Body):
    """The `data:` of one server-sent event; its `event:` is `kind`, its `id:` is `id`."""

    id: int
    kind: str
    at: datetime
    message: str
    site: str | None
    deployment_id: str | None
    node_id: str | None
    subject: str = Field(description="What it is about, as kind/id: `deployment/…`, `node/…`, `rollout/…`.")
    data: Mapping[str, Any]
