"""Pulls one image of a component, unless the engine has it already."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

from homeport.adapters.registry.credentials import RegistryCredentials, local_login
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.failures import pull_failed
from homeport.core.model.deployment import ComponentSpec
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.ports import OnProgress
from homeport.vocabulary import Step


async def pull_if_missing(
    engine: ContainerEngine, api: EngineApi, spec: ComponentSpec, image: str, on_progress: OnProgress
) -> None:
    await pull_image(
        engine,
        api,
        image,
        on_progress,
        source=spec.name,
        seconds=spec.timeout_seconds,
        user=spec.content_user,
    )


async def pull_image(
    engine: ContainerEngine,
    api: EngineApi,
    image: str,
    on_progress: OnProgress,
    *,
    source: str,
    seconds: float,
    user: str = "",
) -> None:
    """Raises WorkFailed with IMAGE_PULL_FAILED or DISK_FULL; `source` is what needs the image, and `user` what the
    site's cache keeps it for."""
    on_bytes = partial(on_progress, Step.PULLING, f"pulling {image}")
    try:
        if await api.has_image(image):
            return
        on_bytes(0, 0)
        with anyio.fail_after(seconds):
            if not await _pull_from_site(engine, api, image, on_bytes, user=user):
                await engine.pull(api, image, on_bytes)
    except (PeerUnavailable, NotFound, InvalidInput, Refused) as error:
        raise pull_failed(source, image, str(error)) from error
    except EngineRefusal as refusal:
        raise pull_failed(source, image, refusal.message) from refusal
    except TimeoutError as error:
        raise pull_failed(source, image, f"it took longer than {seconds:.0f} s") from error


async def _pull_from_site(
    engine: ContainerEngine, api: EngineApi, image: str, on_bytes: Callable[[int, int], None], *, user: str
) -> bool:
    """Whether the engine has it now, under its own name."""
    if engine.mirror is None:
        return False
    async with engine.mirror.offer(image, user) as offer:
        if offer is None:
            return False
        try:
            await engine.pull(api, offer.reference, on_bytes)
        except EngineRefusal as refusal:
            if offer.may_pull_directly:
                return False
            raise EngineRefusal(refusal.status, str(offer.problem or refusal.message)) from refusal
        # An engine finds an image of a digest by name and digest, so any tag of ours will do.
        own = offer.image
        tag = own.tag or own.digest.replace(":", "-")
        await api.tag_image(offer.reference, f"{own.host}/{own.name}", tag)
        await api.remove_image(offer.reference)
    # Docker does not find one by its digest; its layers are here, so that the engine fetches a few kilobytes.
    return await api.has_image(image)


def login_for(image: str, access_folder: Path | None) -> RegistryCredentials | None:
    """For an image in Homeport's own registry on this machine."""
    return local_login(access_folder, image.partition("/")[0]) if is_on_this_machine(image) else None


def is_on_this_machine(image: str) -> bool:
    """Whether an image's registry is on loopback. Like Docker, such a one is accessed without TLS."""
    host, slash, _ = image.partition("/")
    return bool(slash) and is_loopback(host_of(host))
