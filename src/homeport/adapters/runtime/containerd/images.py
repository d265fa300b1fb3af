"""Images in containerd's own store: pulling, inspecting, removing."""

import json
import platform
from collections.abc import Collection
from functools import partial
from typing import Any

from homeport.adapters.registry.image_mirror import ImageMirror
from homeport.adapters.runtime.containerd.arguments import config_digest, full_reference, manifest_digest, size_of
from homeport.adapters.runtime.containerd.ctr import Ctr, CtrRefusal
from homeport.adapters.runtime.docker_api.image_pull import is_on_this_machine
from homeport.adapters.runtime.failures import create_failed, pull_failed
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.ports import OnProgress
from homeport.vocabulary import Step

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


async def pull_if_missing(
    ctr: Ctr, mirror: ImageMirror | None, spec: ComponentSpec, image: str, on_progress: OnProgress
) -> None:
    """Raises WorkFailed with IMAGE_PULL_FAILED or DISK_FULL."""
    reference = full_reference(image)
    on_bytes = partial(on_progress, Step.PULLING, f"pulling {image}")
    # Like Docker and our Podman, use plain http for a registry on this machine.
    plain = ["--plain-http"] if is_on_this_machine(reference) else []
    try:
        if await ctr.has_image(reference):
            return
        on_bytes(0, 0)
        if not await _pull_from_site(ctr, mirror, spec, image, reference):
            await ctr.call("images", "pull", *plain, reference, seconds=spec.timeout_seconds)
        size = size_of(await ctr.call("images", "ls", f"name=={reference}"))
    except (PeerUnavailable, NotFound, InvalidInput, Refused) as error:
        raise pull_failed(spec.name, image, str(error)) from error
    except CtrRefusal as refusal:
        raise pull_failed(spec.name, image, refusal.message) from refusal
    except TimeoutError as error:
        raise pull_failed(spec.name, image, f"it took longer than {spec.timeout_seconds:.0f} s") from error
    on_bytes(size, size)


async def _pull_from_site(
    ctr: Ctr, mirror: ImageMirror | None, spec: ComponentSpec, image: str, reference: str
) -> bool:
    """Whether containerd has it now, under its own name."""
    if mirror is None:
        return False
    async with mirror.offer(image, spec.content_user) as offer:
        if offer is None:
            return False
        try:
            await ctr.call("images", "pull", "--plain-http", offer.reference, seconds=spec.timeout_seconds)
        except CtrRefusal as refusal:
            if offer.may_pull_directly:
                return False
            raise CtrRefusal(refusal.exit_code, str(offer.problem or refusal.message)) from refusal
        await ctr.call("images", "tag", "--force", offer.reference, reference)
        await ctr.call("images", "rm", offer.reference)
    return True


async def entrypoint(ctr: Ctr, component: str, image: str) -> list[str]:
    """The image's entrypoint. ctr replaces it together with the arguments, so it has to be known to keep it."""
    try:
        listed = (await ctr.call("images", "ls", f"name=={full_reference(image)}")).splitlines()
        content = await _content(ctr, next(word for word in listed[-1].split() if word.startswith("sha256:")))
        machine = ARCHITECTURES.get(platform.machine(), platform.machine())
        if "manifests" in content:
            content = await _content(ctr, manifest_digest(content, machine) or "")
        config = await _content(ctr, config_digest(content) or "")
    except (CtrRefusal, ValueError, LookupError, StopIteration) as error:
        raise create_failed(component, f"what the image {image} starts cannot be read: {error}") from error
    return [str(word) for word in (config.get("config") or {}).get("Entrypoint") or ()]


async def remove_unused(ctr: Ctr, images: Collection[str]) -> None:
    """Images that another of our containers uses stay; that is not a failure."""
    for image in sorted(images):
        try:
            if not (await ctr.call("containers", "ls", "-q", f"image=={image}")).split():
                await ctr.call("images", "rm", "--sync", image)
        except (CtrRefusal, TimeoutError):
            continue


async def _content(ctr: Ctr, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await ctr.call("content", "get", digest))
    return found
