"""Where components come from, and what is asked of charts before they are deployed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from homeport.core.model.deployment import ComponentSpec
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class Layer:
    media_type: str
    content: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Artifact:
    artifact_type: str
    layers: tuple[Layer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    config: Layer | None = None
    """For artifacts that are told by the type of their config, such as helm charts; only for pushing."""


class Registry(Protocol):
    """An OCI registry. References are `oci://host[:port]/name`."""

    async def pull(self, repository: str, tag: str) -> Artifact:
        """Every layer checked against its digest. Raises NotFound, PeerUnavailable, InvalidInput."""
        ...

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest: ...


@dataclass(frozen=True, slots=True)
class ChartVerdict:
    """What a node without Kubernetes would say of a chart."""

    refused: str | None = None
    """Code and sentence of the failure that a deploy would end in."""
    notes: tuple[str, ...] = ()
    unknown: str | None = None
    """Why it could not be found out."""


class Charts(Protocol):
    async def judge(self, spec: ComponentSpec) -> ChartVerdict: ...
