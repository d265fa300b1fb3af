"""Finds a registry's user and password where `podman login` and `docker login` store them.

Credentials are read again for each connection, so that a login takes effect without a restart. They never appear in
messages. Credential helper programs are not used.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from homeport.adapters.local_access import KeyKind, find
from homeport.core.values.addresses import host_of, is_loopback
from homeport.lazy_dataclass import dataclass

LOCAL_USER: Final = "homeport"
"""The built-in registry checks only the password, which is a token or a key."""


@dataclass(frozen=True, slots=True)
class RegistryCredentials:
    user: str
    password: str = field(repr=False)
    identity_token: str | None = field(default=None, repr=False)

    @property
    def for_engine(self) -> str:
        """In the format of a container engine's pull request (X-Registry-Auth)."""
        content = json.dumps({"username": self.user, "password": self.password})
        return base64.urlsafe_b64encode(content.encode()).decode()

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def default_auth_files(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The files that Podman and Docker use, the most specific first."""
    if chosen := environment.get("REGISTRY_AUTH_FILE"):
        return (Path(chosen),)
    runtime = environment.get("XDG_RUNTIME_DIR")
    settings = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    docker = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    podman = [Path(runtime) / "containers/auth.json"] if runtime else []
    return (*podman, settings / "containers/auth.json", docker / "config.json")


def find_credentials(files: Sequence[Path], host: str, name: str) -> RegistryCredentials | None:
    """The first file that has the repository or its host decides. An invalid file is ignored."""
    for file in files:
        auths = _auths(file)
        for key in _keys(host, name):
            credentials = _decode(auths.get(key))
            if credentials is not None:
                return credentials
    return None


def local_login(folder: Path | None, host: str) -> RegistryCredentials | None:
    """For a registry on this machine: the local key that its role published for its own user."""
    name = host_of(host)
    port = host.rpartition(":")[2]
    if not is_loopback(name) or not port.isdecimal():
        return None
    found = find(folder, int(port), KeyKind.MACHINE)
    return RegistryCredentials(LOCAL_USER, found.key) if found is not None and found.opens(name) else None


def _auths(file: Path) -> Mapping[str, Any]:
    try:
        auths = json.loads(file.read_bytes()).get("auths")
    except (OSError, RecursionError, ValueError, AttributeError):
        return {}
    return auths if isinstance(auths, dict) else {}


def _keys(host: str, name: str) -> list[str]:
    """`host/team/app`, `host/team`, `host`, and the ways Docker writes a host."""
    parts = name.split("/")
    narrower = [f"{host}/{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
    return [*narrower, host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/", f"http://{host}"]


def _decode(entry: Any) -> RegistryCredentials | None:
    if not isinstance(entry, dict):
        return None
    token = entry.get("identitytoken")
    token = token if isinstance(token, str) and token else None
    try:
        user, separator, password = base64.b64decode(entry.get("auth") or "", validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, TypeError):
        return None
    if not separator and token is None:
        return None
    return RegistryCredentials(user, password.rstrip("\0"), token)
