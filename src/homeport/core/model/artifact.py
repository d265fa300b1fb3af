"""What a registry stores under a tag: layers with media type and annotations."""

from collections.abc import Mapping
from dataclasses import field

from homeport.lazy_dataclass import dataclass


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
    """For artifacts identified by the media type of their config, such as helm charts; only for pushing."""
