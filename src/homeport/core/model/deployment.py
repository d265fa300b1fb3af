"""What is wanted: one deployment file of a site, and the release it asks for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from homeport.core.model.app import Value
from homeport.vocabulary import DeploymentId, Digest, NodeId, ProfileType, RolloutId, SiteName


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One component of a release with everything a node needs to run it."""

    name: str
    type: ProfileType
    repository: str
    revision: str
    environment: Mapping[str, str] = field(default_factory=dict)
    wait: bool = True
    timeout_seconds: float = 300.0
    extensions: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, int] = field(default_factory=dict)
    """Name and version of each secret that the environment refers to; filled in by the site."""
    secret_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Their values, by name: only between a site and its node, and never shown."""

    @property
    def digest(self) -> Digest:
        """Equal digests mean that a running component can stay as it is.

        How long to wait for it is no part of what runs, so `wait` and `timeout_seconds` are left out. A secret
        counts by its version: the digest is a label that many can read.
        """
        content: dict[str, Any] = {
            "name": self.name,
            "type": self.type.value,
            "repository": self.repository,
            "revision": self.revision,
            "environment": dict(self.environment),
            "extensions": self.extensions,
        }
        if self.secrets:
            content["secrets"] = dict(self.secrets)
        return digest_of(content)


@dataclass(frozen=True, slots=True)
class Release:
    """The content of one revision of a deployment, as sent to nodes."""

    deployment_id: DeploymentId
    name: str
    revision: Digest
    app_version: str
    components: tuple[ComponentSpec, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Which of a site's nodes get an instance. Empty `nodes` means every eligible one."""

    nodes: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class Desired:
    """One parsed deployment file."""

    id: DeploymentId
    site: SiteName
    name: str
    namespace: str
    margo_app_id: str
    app_name: str
    app_category: str
    app_version: str
    profile_id: str
    profile_type: ProfileType
    release: Release
    parameters: Mapping[str, Value]
    device_constraints: Mapping[str, Any] | None
    placement: Placement
    rollout_id: RolloutId | None
    revision: Digest
    """SHA-256 of the file's bytes. *Newer* means another digest than the one last judged."""
    path: str
    """Where the file stands in the repository, for messages."""
    remove_images: bool = False
    """Whether its images go with it when it is removed (`x-homeport-extensions: {removal: {images: true}}`)."""


def digest_of(value: Any) -> Digest:
    """SHA-256 over the canonical JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_of_bytes(text.encode())


def digest_of_bytes(content: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())
