"""Health and readiness of a role."""

from collections.abc import Mapping
from typing import Literal

from homeport.serving.bodies.body import Body


class HealthBody(Body):
    status: Literal["ok"]
    role: str
    version: str


class ReadyBody(Body):
    status: Literal["ready", "not ready"]
    role: str
    checks: Mapping[str, str]
    """Each check with `ok` or one sentence saying what is wrong."""
