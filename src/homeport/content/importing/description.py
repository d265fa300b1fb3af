"""The application description (`margo.yaml`) of an imported app. Pure.

A component's revision is derived from its content, so that a description shows whether anything has changed: two
imports of one folder give the same description except for the version, which the catalog assigns.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from homeport.content.importing.parameters import Offered, render_parameters
from homeport.core.archive import pack_archive
from homeport.errors import Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import ProfileType

CATEGORY: Final = "local"
"""The category of imported apps in the catalog."""
FIRST_VERSION: Final = "1.0.0"
OURS: Final = "x-homeport-extensions"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Imported:
    """One app, before it has a version and before its component's repository is known."""

    name: str
    type: ProfileType
    summary: str
    offered: tuple[Offered, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Of the component; empty for an image, and for a chart that stays in the registry it came from."""
    executable: frozenset[str] = frozenset()
    """Those of the files that are executable."""
    notes: tuple[str, ...] = ()
    own_version: str | None = None
    """Only charts have one."""
    place: tuple[str, str] | None = None
    """Repository and revision of a component that is published elsewhere already."""
    undefined: Mapping[str, Problem] = field(default_factory=dict)
    """Variables without a value, each with the problem."""
    extension: Mapping[str, Any] = field(default_factory=dict)
    """For `x-homeport-extensions` of the component."""

    @property
    def archive(self) -> bytes:
        return pack_archive(self.name, self.files, executable=self.executable)

    @property
    def revision(self) -> str:
        """Derived from the content: equal for equal content only."""
        digest = hashlib.sha256(self.archive).hexdigest()[:_DIGITS]
        return f"{(self.own_version or '0.0.0').replace('+', '_').partition('_')[0]}_{digest}"


def render_description(imported: Imported, *, repository: str, revision: str, version: str) -> dict[str, Any]:
    """As plain data, in the usual order."""
    component: dict[str, Any] = {
        "name": imported.name,
        "properties": {"repository": repository, "revision": revision, "wait": True, "timeout": "5m0s"},
    }
    if imported.extension:
        component[OURS] = dict(imported.extension)
    profile: dict[str, Any] = {"type": imported.type.value, "id": f"{imported.name}-{imported.type.value}"}
    if imported.type is ProfileType.CUSTOM:
        profile["deviceConstraints"] = _needs_an_engine(imported.extension)
    return {
        "apiVersion": "v1",
        "id": f"local-{imported.name}",
        "metadata": {
            "name": imported.name,
            "description": imported.summary,
            "version": version,
            "catalog": {"application": {"tags": [imported.type.value]}, "organization": [{"name": "local"}]},
        },
        "deploymentProfiles": [{**profile, "components": [component]}],
        **render_parameters(imported.offered, imported.name),
    }


def _needs_an_engine(extension: Mapping[str, Any]) -> dict[str, Any]:
    """Margo requires a label selector in every custom profile."""
    values = ["podman", "docker", "containerd", *(["process"] if "engine" in extension else [])]
    expression = {"key": "homeport.engine", "operator": "In", "values": values}
    return {"eligibilityRules": [{"labelSelector": {"matchExpressions": [expression]}}]}


def app_name(*candidates: str) -> str:
    """The first of the names that is not empty once adapted to a valid app name."""
    for candidate in candidates:
        name = re.sub(r"[^a-z0-9]+", "-", candidate.lower()).strip("-")[:63].strip("-")
        if name:
            return name
    return "app"
