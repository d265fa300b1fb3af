"""Pulls a component's archive from its registry to a node's disk, complete and verified."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from homeport.adapters.runtime.compose.files import ARTIFACT_TYPE, LAYER_TYPE, unpack
from homeport.adapters.runtime.failures import disk_full, is_disk_full
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import HomeportError, NotFound, WorkFailed
from homeport.ports import Artifact, Registry
from homeport.vocabulary import Code


async def fetch_component(registry: Registry, spec: ComponentSpec, folder: Path) -> None:
    """Raises WorkFailed with COMPONENT_FETCH_FAILED or DISK_FULL."""
    with fetching(spec, "component"):
        with anyio.fail_after(spec.timeout_seconds):
            artifact = await registry.pull(spec.repository, spec.revision, user=spec.content_user)
        await anyio.to_thread.run_sync(partial(unpack, _archive(artifact), folder))


@contextmanager
def fetching(spec: ComponentSpec, noun: str) -> Iterator[None]:
    """Translates any error into a failure that names the component and its source."""

    def failed(reason: str) -> WorkFailed:
        message = f"The {noun} {spec.name} could not be fetched from {spec.repository}:{spec.revision}: {reason}"
        return WorkFailed(Code.COMPONENT_FETCH_FAILED, message, source=spec.name)

    try:
        yield
    except TimeoutError as error:
        raise failed(f"it took longer than {spec.timeout_seconds:.0f} s") from error
    except NotFound as error:
        raise failed(f"{error} Push it there with  homeport apps push , or correct the description") from error
    except HomeportError as error:
        raise failed(str(error)) from error
    except OSError as error:
        if is_disk_full(str(error)):
            raise disk_full(spec.name) from error
        raise failed(str(error)) from error


def _archive(artifact: Artifact) -> bytes:
    kind, types = artifact.artifact_type, [layer.media_type for layer in artifact.layers]
    if kind != ARTIFACT_TYPE or types != [LAYER_TYPE]:
        hint = "; publish it with  homeport apps push , not with  docker compose publish" if "docker" in kind else ""
        raise HomeportError(f"it is not a compose component ({ARTIFACT_TYPE} with one layer {LAYER_TYPE}){hint}")
    return artifact.layers[0].content
