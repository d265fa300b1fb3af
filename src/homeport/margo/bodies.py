"""Bodies about Margo devices."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from homeport.serving.bodies.body import Body


class ComponentStatusBody(Body):
    name: str
    state: str
    error: Mapping[str, Any] | None = None


class DeviceStatusBody(Body):
    """The last status report about a deployment on a device."""

    deployment_id: str
    device_id: str
    adopted_manifest_version: int
    state: str
    error: Mapping[str, Any] | None
    components: Sequence[ComponentStatusBody]
    at: datetime


class DeviceBody(Body):
    """A device as its Margo client has reported it."""

    site: str
    id: str
    gateway: str | None
    hosting: bool
    properties: Mapping[str, Any]
    labels: Mapping[str, Any]
    extensions: Mapping[str, Any]
    reported_at: datetime


class DevicesBody(Body):
    site: str
    manifest_version: int | None
    """The newest State Manifest of the client; null before its first poll."""
    items: Sequence[DeviceBody]
    statuses: Sequence[DeviceStatusBody]


class DeviceMatchBody(Body):
    device_id: str
    fits: bool
    why: str | None
    """Why the device cannot take the profile; null when it can."""


class ProfileMatchBody(Body):
    profile: str
    type: str
    placeable: bool
    devices: Sequence[DeviceMatchBody]


class MatchesBody(Body):
    """Which devices may take an app, by Margo's rules."""

    app_name: str
    app_version: str
    site: str
    profiles: Sequence[ProfileMatchBody]
