"""The GPUs of each node, from its newest measurements."""

from collections.abc import Iterable, Mapping
from typing import Final

from homeport.core.inference.engines.gpus import GpusOfNode, GpuUse
from homeport.telemetry.shared.latest import Latest

USED: Final = "gpu_memory_used_bytes"
BUSY: Final = "gpu_percent"


def gpus_of(latest: Iterable[Latest]) -> Mapping[tuple[str, str], GpusOfNode]:
    """By site and node; a node without a GPU is left out."""
    return {(each.site, each.node_id): found for each in latest if (found := _gpus(each))}


def _gpus(latest: Latest) -> dict[str, GpuUse]:
    used = {dict(labels).get("gpu", ""): value for (name, labels), value in latest.values.items() if name == USED}
    busy = {dict(labels).get("gpu", ""): value for (name, labels), value in latest.values.items() if name == BUSY}
    return {
        device: GpuUse(None if device not in busy else busy[device] / 100, used.get(device))
        for device in sorted(used.keys() | busy.keys())
    }
