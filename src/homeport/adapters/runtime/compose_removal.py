"""Takes a compose project away through the engine's API: containers, then networks. Volumes are data and stay."""

from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from typing import Any

from homeport.adapters.runtime.at_once import at_once
from homeport.adapters.runtime.engine_api import EngineApi, Listed, Refusal
from homeport.errors import WorkFailed
from homeport.vocabulary import Code

LABEL_PROJECT = "com.docker.compose.project"
"""podman-compose writes Docker's label too."""


async def remove_project(api: EngineApi, containers: Sequence[Listed], project: str, component: str) -> None:
    """Idempotent; raises WorkFailed with REMOVE_FAILED when something stays."""
    try:
        await at_once(partial(_stop, api), [container.id for container in containers if container.running])
        await _remove_containers(api, [container.id for container in containers])
        for network in await api.networks(f"{LABEL_PROJECT}={project}"):
            await _unless_gone(api.remove_network(network))
    except Refusal as refusal:
        message = f"{component} could not be removed: {refusal.message}"
        raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from refusal


async def remove_images_unused(api: EngineApi, images: Collection[str]) -> None:
    """What another container uses stays, and is no failure."""
    for image in sorted(images):
        try:
            await api.remove_image(image)
        except Refusal:
            continue


async def _stop(api: EngineApi, container: str) -> None:
    try:
        await api.stop(container)
    except Refusal:
        # Removal, which is forced, tells what is wrong if anything is.
        return


async def _remove_containers(api: EngineApi, containers: Sequence[str]) -> None:
    """Podman refuses to remove what another container depends on; newest first, and again after the others."""
    left = list(containers)
    while left:
        refused: list[str] = []
        last: Refusal | None = None
        for container in left:
            try:
                await _unless_gone(api.remove_container(container))
            except Refusal as refusal:
                refused.append(container)
                last = refusal
        if last is not None and len(refused) == len(left):
            raise last
        left = refused


async def _unless_gone(removal: Awaitable[Any]) -> None:
    try:
        await removal
    except Refusal as refusal:
        if refusal.status != 404:
            raise
