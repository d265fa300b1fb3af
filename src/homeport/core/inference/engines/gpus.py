"""Which GPUs a replica uses, and how much. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from homeport.core.inference.engines.handoff import Handoff


@dataclass(frozen=True, slots=True)
class GpuUse:
    """None where the hardware or its driver does not say."""

    utilization: float | None = None
    """From 0 to 1."""
    memory_used_bytes: float | None = None


GpusOfNode = Mapping[str, GpuUse]
"""By the number of the device."""


def gpus_of_replica(handoff: Handoff, node: GpusOfNode) -> GpusOfNode:
    """Those of its mask, else all of its node. None for an engine on the CPU, and for one that others started unless
    it names its devices: it may run anywhere."""
    if handoff.device_mask:
        mask = {each.strip() for each in handoff.device_mask.split(",")}
        return {device: use for device, use in node.items() if device in mask}
    is_elsewhere = handoff.provisioning_mode == "external"
    return {} if is_elsewhere or handoff.engine_version.endswith("-cpu") else node
