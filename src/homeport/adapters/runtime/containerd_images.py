"""Images in containerd's own store: fetched, asked, removed."""

import json
import platform
from collections.abc import Collection
from functools import partial
from typing import Any

from homeport.adapters.runtime.containerd_arguments import config_digest, full_reference, manifest_digest, size_of
from homeport.adapters.runtime.ctr import Ctr, CtrRefusal
from homeport.adapters.runtime.failures import create_failed, pull_failed
from homeport.adapters.runtime.podman import is_loopback
from homeport.core.model.deployment import ComponentSpec
from homeport.ports import OnProgress
from homeport.vocabulary import Step

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


async def pull_if_missing(ctr: Ctr, spec: ComponentSpec, image: str, on_progress: OnProgress) -> None:
    """Raises WorkFailed with IMAGE_PULL_FAILED or DISK_FULL."""
    reference = full_reference(image)
    on_bytes = partial(on_progress, Step.PULLING, f"pulling {image}")
    # As Docker and our Podman do, a registry on this very machine is spoken to without a certificate.
    plain = ["--plain-http"] if is_loopback(reference) else []
    try:
        if await ctr.has_image(reference):
            return
        on_bytes(0, 0)
        await ctr.call("images", "pull", *plain, reference, seconds=spec.timeout_seconds)
        size = size_of(await ctr.call("images", "ls", f"name=={reference}"))
    except CtrRefusal as refusal:
        raise pull_failed(spec.name, image, refusal.message) from refusal
    except TimeoutError as error:
        raise pull_failed(spec.name, image, f"it took longer than {spec.timeout_seconds:.0f} s") from error
    on_bytes(size, size)


async def entrypoint(ctr: Ctr, component: str, image: str) -> list[str]:
    """What the image starts. ctr replaces it together with the arguments, so it has to be known to keep it."""
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
    """What another container of ours uses stays, and is no failure."""
    for image in sorted(images):
        try:
            if not (await ctr.call("containers", "ls", "-q", f"image=={image}")).split():
                await ctr.call("images", "rm", "--sync", image)
        except (CtrRefusal, TimeoutError):
            continue


async def _content(ctr: Ctr, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await ctr.call("content", "get", digest))
    return found
