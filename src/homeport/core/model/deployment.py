"""What is wanted: one deployment file of a site, and the release it asks for."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from homeport.core.model.app import Value
from homeport.core.selectors import ANYTHING, Selector
from homeport.vocabulary import Commit, DeploymentId, Digest, NodeId, PlacementMode, ProfileType, RolloutId, SiteName


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One component of a release with everything a node needs to run it."""

    name: str
    type: ProfileType
    repository: str
    revision: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of its containers; for helm, the chart's values (as JSON) by where they go (`web.replicas`)."""
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
    mode: PlacementMode = PlacementMode.EACH
    count: int = 1
    """With COUNT: how many nodes. ONE is always one, EACH all that suit."""
    selector: Selector = ANYTHING
    """Labels that a node must have."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a site does when a release does not work. It stands in the file, so that the site decides alone."""

    retries_max: int = 3
    """Further attempts after the first; 0 gives up at once."""
    backoff_seconds: float = 5.0
    """The wait before the first retry. It doubles each time, up to `BACKOFF_SECONDS_MAX`."""
    rollback: bool = True
    """Whether the last good release comes back when an update fails for good."""
    deadline_seconds: float = 3600.0
    """How long it may take in all until it is healthy: pulling, retries and the waits between them. Going back has as
    long again."""


ON_EACH_NODE: Final = Placement()
USUAL_POLICY: Final = Policy()


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
    policy: Policy = USUAL_POLICY
    remove_images: bool = False
    """Whether its images go with it when it is removed (`x-homeport-extensions: {removal: {images: true}}`)."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The content that a deployment had at some time; the newest few are kept, to compare and to go back to."""

    deployment_id: DeploymentId
    revision: Digest
    app_version: str
    content: bytes
    commit: Commit
    author: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pin:
    """A person's wish to stay at an older revision, until Git has another one than `over`."""

    deployment_id: DeploymentId
    revision: Digest
    content: bytes
    over: Digest
    """What Git wanted at that moment."""
    reason: str
    author: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """A site operator's word that nothing is to change for a while."""

    site: SiteName
    deployment_id: DeploymentId | None
    """None: the whole site."""
    reason: str
    author: str
    at: datetime
    expires_at: datetime


def digest_of(value: Any) -> Digest:
    """SHA-256 over the canonical JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return digest_of_bytes(text.encode())


def digest_of_bytes(content: bytes) -> Digest:
    return Digest("sha256:" + hashlib.sha256(content).hexdigest())
