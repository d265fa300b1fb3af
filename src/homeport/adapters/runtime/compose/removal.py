"""Removes a compose project through the engine's API: containers, then networks. Volumes are data, and are removed
only on request."""

from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from typing import Any

from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal, ListedContainer
from homeport.adapters.runtime.programs.concurrently import at_once
from homeport.errors import WorkFailed
from homeport.vocabulary import Code

LABEL_PROJECT = "com.docker.compose.project"
"""podman-compose sets Docker's label too."""


async def remove_project(api: EngineApi, containers: Sequence[ListedContainer], project: str, component: str) -> None:
    """Idempotent; raises WorkFailed with REMOVE_FAILED when something remains."""
    try:
        await at_once(partial(_stop, api), [container.id for container in containers if container.running])
        await _remove_containers(api, [container.id for container in containers])
        for network in await api.networks(f"{LABEL_PROJECT}={project}"):
            await _unless_gone(api.remove_network(network))
    except EngineRefusal as refusal:
        message = f"{component} could not be removed: {refusal.message}"
        raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from refusal


async def remove_images_unused(api: EngineApi, images: Collection[str]) -> None:
    """Images that another container uses stay; that is not a failure."""
    for image in sorted(images):
        try:
            await api.remove_image(image)
        except EngineRefusal:
            continue


async def remove_volumes(api: EngineApi, prefixes: tuple[str, ...], component: str) -> None:
    """Idempotent; raises WorkFailed with REMOVE_FAILED when one remains because another container uses it."""
    try:
        for volume in await api.volumes():
            if volume.startswith(prefixes):
                await _unless_gone(api.remove_volume(volume))
    except EngineRefusal as refusal:
        message = f"The data of {component} could not be removed: {refusal.message}"
        raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from refusal


async def _stop(api: EngineApi, container: str) -> None:
    try:
        await api.stop(container)
    except EngineRefusal:
        # The removal, which is forced, reports any problem.
        return


async def _remove_containers(api: EngineApi, containers: Sequence[str]) -> None:
    """Podman refuses to remove a container that another depends on; newest first, and again after the others."""
    left = list(containers)
    while left:
        refused: list[str] = []
        last: EngineRefusal | None = None
        for container in left:
            try:
                await _unless_gone(api.remove_container(container))
            except EngineRefusal as refusal:
                refused.append(container)
                last = refusal
        if last is not None and len(refused) == len(left):
            raise last
        left = refused


async def _unless_gone(removal: Awaitable[Any]) -> None:
    try:
        await removal
    except EngineRefusal as refusal:
        if refusal.status != 404:
            raise
