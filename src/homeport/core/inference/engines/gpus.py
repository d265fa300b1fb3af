"""Which GPUs a replica uses, and how much. Pure."""

from collections.abc import Mapping
from typing import Final

from homeport.core.inference.engines.handoff import Handoff, Loading
from homeport.lazy_dataclass import dataclass

_PARTLY: Final = ("-ngl", "--gpu-layers", "--n-gpu-layers", "--cpu-moe", "--n-cpu-moe", "--cpu-offload-gb")
"""Flags of engines with which a part of the model stays out of the GPU."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """None where the hardware or its driver does not say."""

    utilization: float | None = None
    """From 0 to 1."""
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


GpusOfNode = Mapping[str, GpuUse]
"""By the number of the device."""


def gpus_of_replica(handoff: Handoff, node: GpusOfNode) -> GpusOfNode:
    """Those of its mask, else all of its node. None for an engine on the CPU, and for one that others started unless
    it names its devices: it may run anywhere."""
    if handoff.device_mask:
        mask = {each.strip() for each in handoff.device_mask.split(",")}
        return {device: use for device, use in node.items() if device in mask}
    is_elsewhere = handoff.is_external
    return {} if is_elsewhere or handoff.engine_version.endswith("-cpu") else node


def free_bytes(gpus: GpusOfNode) -> int | None:
    """Of all of them together, over which engines split a model; None where one does not say, or there is none."""
    free = 0.0
    for use in gpus.values():
        if use.memory_total_bytes is None or use.memory_used_bytes is None:
            return None
        free += max(0.0, use.memory_total_bytes - use.memory_used_bytes)
    return int(free) if gpus else None


def needed_bytes(handoff: Handoff) -> int | None:
    """What its model takes of the GPU's memory when it is loaded: at least its size. None where it is there already,
    or its size is unknown."""
    if handoff.loading is not Loading.UNLOADED or any(flag.split("=")[0] in _PARTLY for flag in handoff.flags):
        return None
    return handoff.model.size_bytes or None
