"""The desired state: one deployment file of a site, and the release it describes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field, fields, replace
from datetime import datetime
from typing import Any, Final

from homeport.core.model.app import Value
from homeport.core.values.selectors import ANYTHING, Selector
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import (
    Commit,
    DeploymentId,
    Digest,
    NodeId,
    OnUnhealthy,
    PlacementMode,
    ProfileType,
    RolloutId,
    SiteName,
)


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One component of a release with everything a node needs to run it."""

    name: str
    type: ProfileType
    repository: str
    revision: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of its containers; for helm, the chart's values (as JSON) by path (`web.replicas`)."""
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

        `wait` and `timeout_seconds` are left out: they do not change what runs. A secret counts by its version,
        because the digest is a label that many can read.
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

    @property
    def content_user(self) -> str:
        """By which a site's cache knows what it needs. Without secrets, which only site and node know."""
        return f"component/{replace(self, secrets={}, secret_values={}).digest}"


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
    """With COUNT: the number of nodes. ONE is always one, EACH all that are eligible."""
    selector: Selector = ANYTHING
    """Labels that a node must have."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a site does when a release fails. It is part of the file, so that the site can decide without central."""

    retries_max: int = 3
    """Further attempts after the first; 0 gives up at once."""
    backoff_seconds: float = 5.0
    """The wait before the first retry. It doubles each time, up to `BACKOFF_SECONDS_MAX`."""
    rollback: bool = True
    """Whether the last good release is restored when an update fails permanently."""
    deadline_seconds: float = 3600.0
    """The total time until it is healthy: pulling, retries and the waits between them. A rollback has as long
    again."""
    on_unhealthy: OnUnhealthy = OnUnhealthy.RESTART
    """What its node does when a component turns unhealthy after it was installed."""


ON_EACH_NODE: Final = Placement()
DEFAULT_POLICY: Final = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOverrides:
    """The requested part of a placement. None: not specified."""

    nodes: tuple[NodeId, ...] | None = None
    mode: PlacementMode | None = None
    count: int | None = None
    selector: Selector | None = None

    def over(self, base: Placement) -> Placement:
        after = replace(base, **given_fields(self))
        return after if after.mode is PlacementMode.COUNT else replace(after, count=ON_EACH_NODE.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverrides:
    """The requested part of a policy. None: not specified."""

    retries_max: int | None = None
    backoff_seconds: float | None = None
    rollback: bool | None = None
    deadline_seconds: float | None = None
    on_unhealthy: OnUnhealthy | None = None

    def over(self, base: Policy) -> Policy:
        return replace(base, **given_fields(self))


def given_fields(overrides: PlacementOverrides | PolicyOverrides) -> dict[str, Any]:
    """The fields that are not None."""
    return {each.name: value for each in fields(overrides) if (value := getattr(overrides, each.name)) is not None}


NO_PLACEMENT_OVERRIDES: Final = PlacementOverrides()
NO_POLICY_OVERRIDES: Final = PolicyOverrides()


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
    """SHA-256 of the file's bytes. *Newer* means another digest than the one last processed."""
    path: str
    """Path of the file in the repository, for messages."""
    policy: Policy = DEFAULT_POLICY
    remove_images: bool = False
    """Whether its images are removed with it (`x-homeport-extensions: {removal: {images: true}}`)."""
    retry: str = ""
    """Who last requested a retry of what failed. It makes another revision of the same content."""
    restart: str = ""
    """Who last requested a restart; part of every component's digest."""
    device: str | None = None
    """The device of a Margo client that it is for; None for the site itself."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Earlier content of a deployment; the newest few are kept, for comparison and rollback."""

    deployment_id: DeploymentId
    revision: Digest
    app_version: str
    content: bytes
    commit: Commit
    author: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pin:
    """A manual rollback: stay at an older revision until Git has another one than `over`."""

    deployment_id: DeploymentId
    revision: Digest
    content: bytes
    over: Digest
    """The revision in Git at that moment."""
    reason: str
    author: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Hold:
    """A site operator's request to change nothing for a while."""

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
