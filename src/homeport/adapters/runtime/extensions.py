"""Reads our own section of a component's extensions. Pure."""

from collections.abc import Mapping
from typing import Any

from homeport.core.model.deployment import ComponentSpec

KEY = "x-homeport-extensions"


def extension(spec: ComponentSpec, name: str) -> Mapping[str, Any]:
    """`x-homeport-extensions.<name>`; empty when it is not there, or not a mapping."""
    ours = spec.extensions.get(KEY)
    found = ours.get(name) if isinstance(ours, Mapping) else None
    return found if isinstance(found, Mapping) else {}
