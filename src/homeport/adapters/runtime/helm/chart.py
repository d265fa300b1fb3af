"""A helm chart on a node's disk: pulled from its registry once per revision, atomically.

It stays packed, as `helm` reads it; only helm validates its content.
"""

import os
from pathlib import Path

import anyio
import anyio.to_thread

from homeport.adapters.runtime.component_fetch import fetching
from homeport.adapters.runtime.compose.files import archive_folder
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import HomeportError
from homeport.ports import Artifact, Registry, Workload

CHART_FILE = "chart.tgz"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CONTENT_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
"""As `helm push` writes it. A provenance file may accompany it."""


def chart_path(workload: Workload) -> Path:
    return archive_folder(workload) / CHART_FILE


async def fetch_chart(registry: Registry, spec: ComponentSpec, path: Path) -> None:
    """Raises WorkFailed with COMPONENT_FETCH_FAILED or DISK_FULL."""
    with fetching(spec, "chart"):
        with anyio.fail_after(spec.timeout_seconds):
            artifact = await registry.pull(spec.repository, spec.revision.replace("+", "_"), user=spec.content_user)
        await anyio.to_thread.run_sync(_keep, chart_of(artifact), path)


def chart_of(artifact: Artifact) -> bytes:
    found = [layer for layer in artifact.layers if layer.media_type == CONTENT_TYPE]
    if len(found) != 1:
        raise HomeportError(f"it is not a helm chart (one layer of type {CONTENT_TYPE})")
    return found[0].content


def _keep(content: bytes, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
