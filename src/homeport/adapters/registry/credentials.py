"""Finds a registry's user and password where `podman login` and `docker login` leave them.

Credentials are read anew for each connection, so that a login takes effect without a restart. They never appear
in messages. Credential helper programs are not asked.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Credentials:
    user: str
    password: str = field(repr=False)
    identity_token: str | None = field(default=None, repr=False)

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


def find_credentials(files: Sequence[Path], host: str, name: str) -> Credentials | None:
    """The first file that knows the repository or its host decides. A broken file is passed over."""
    for file in files:
        auths = _auths(file)
        for key in _keys(host, name):
            credentials = _decode(auths.get(key))
            if credentials is not None:
                return credentials
    return None


def _auths(file: Path) -> Mapping[str, Any]:
    try:
        auths = json.loads(file.read_bytes()).get("auths")
    except (OSError, ValueError, AttributeError):
        return {}
    return auths if isinstance(auths, dict) else {}


def _keys(host: str, name: str) -> list[str]:
    """`host/team/app`, `host/team`, `host`, and the ways Docker writes a host."""
    parts = name.split("/")
    narrower = [f"{host}/{'/'.join(parts[:count])}" for count in range(len(parts), 0, -1)]
    return [*narrower, host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/", f"http://{host}"]


def _decode(entry: Any) -> Credentials | None:
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
    return Credentials(user, password.rstrip("\0"), token)
