"""Brings one image of a component to the engine, unless it is there already."""

from functools import partial

import anyio

from homeport.adapters.runtime.container_engine import ContainerEngine
from homeport.adapters.runtime.engine_api import EngineApi, Refusal
from homeport.adapters.runtime.failures import pull_failed
from homeport.core.model.deployment import ComponentSpec
from homeport.ports import OnProgress
from homeport.vocabulary import Step


async def pull_if_missing(
    engine: ContainerEngine, api: EngineApi, spec: ComponentSpec, image: str, on_progress: OnProgress
) -> None:
    """Raises WorkFailed with IMAGE_PULL_FAILED or DISK_FULL."""
    on_bytes = partial(on_progress, Step.PULLING, f"pulling {image}")
    try:
        if await api.has_image(image):
            return
        on_bytes(0, 0)
        with anyio.fail_after(spec.timeout_seconds):
            await engine.pull(api, image, on_bytes)
    except Refusal as refusal:
        raise pull_failed(spec.name, image, refusal.message) from refusal
    except TimeoutError as error:
        raise pull_failed(spec.name, image, f"it took longer than {spec.timeout_seconds:.0f} s") from error
