"""What a Workload Fleet Manager (WFM) keeps of its Margo clients: manifests, artifacts, devices, status reports."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest, SiteName


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """The newest State Manifest of a client, as served."""

    site: SiteName
    version: int
    """`manifestVersion`: strictly increasing, never reused, not even after the client was removed."""
    body: bytes
    recent: tuple[int, ...]
    """The versions whose artifacts can still be fetched, newest first."""
    rendered_at: datetime


@dataclass(frozen=True, slots=True)
class ManifestArtifact:
    """A deployment's YAML or a bundle, with the exact bytes that its digest is of."""

    site: SiteName
    digest: Digest
    deployment_id: DeploymentId | None
    """None for a bundle."""
    content: bytes
    version: int
    """The newest manifest that lists it."""


@dataclass(frozen=True, slots=True)
class MargoDevice:
    """A device as its client has reported it (`PUT /api/v1/capabilities/{deviceId}`)."""

    site: SiteName
    id: str
    """The full path: `gateway/child` for a child device."""
    properties: Mapping[str, Any]
    labels: Mapping[str, Any]
    reported_at: datetime
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_hosting(self) -> bool:
        """Whether workloads can be deployed to it. A gateway that hosts nothing leaves these fields out."""
        return "supportedDeploymentTypes" in self.properties


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """The last status report of a client about a deployment on one of its devices."""

    site: SiteName
    deployment_id: DeploymentId
    device_id: str
    adopted_version: int
    state: str
    error: Mapping[str, Any] | None
    components: Sequence[Mapping[str, Any]]
    at: datetime
