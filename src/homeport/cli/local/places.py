"""Registries that components, charts and built images are pushed to, and how each is reached."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from homeport.adapters.registry.credentials import LOCAL_USER, RegistryCredentials, default_auth_files
from homeport.cli.api.client import Client, Json
from homeport.core.values.addresses import host_of
from homeport.errors import NotFound, PeerUnavailable, Refused
from homeport.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from homeport.adapters.registry.oci import OciRegistry
    from homeport.adapters.registry.transport import Trust


@dataclass(frozen=True, slots=True)
class ComponentRegistry:
    """A registry for components."""

    host: str
    prefix: str
    login: RegistryCredentials | None = None
    trust: "Trust | None" = None
    """How a built-in registry with its own authority is authenticated."""
    authority: Callable[[], str] = lambda: ""
    """The same as PEM, for programs that push images."""

    def repository(self, name: str) -> str:
        return f"{self.host}/{self.prefix}/{name}" if self.prefix else f"{self.host}/{name}"


def own_registry(client: Client, host: str) -> ComponentRegistry | None:
    """The server's own registry, if `host` (with port) is that. Only a server on the same host is asked."""
    if host_of(host).strip("[]") != client.host:
        return None
    try:
        found = client.get("/api/v1/registry")
    except (NotFound, Refused, PeerUnavailable):
        return None
    return built_in_place(client, found) if found.get("host") == host else None


def built_in_place(client: Client, found: Json) -> ComponentRegistry:
    """The registry of the server itself: it takes the same token, and shows the same certificate."""
    token = client.token()
    login = RegistryCredentials(LOCAL_USER, token) if token else None
    host, prefix = str(found["host"]), str(found["name_prefix"])
    if not found.get("tls"):
        return ComponentRegistry(host, prefix, login)
    from homeport.adapters.registry.transport import Trust  # noqa: PLC0415 - start-up time

    trust = client.trust()
    return ComponentRegistry(host, prefix, login, None if trust is None else Trust(*trust), client.authority)


def registry_client(place: ComponentRegistry | None) -> "OciRegistry":
    """Knows the logins of podman and docker, and how to reach `place`."""
    from homeport.adapters.registry.oci import OciRegistry  # noqa: PLC0415 - start-up time

    files = default_auth_files(os.environ, Path.home())
    if place is None:
        return OciRegistry(files)
    return OciRegistry(
        files,
        logins={} if place.login is None else {place.host: place.login},
        trusted={} if place.trust is None else {place.host: place.trust},
    )
