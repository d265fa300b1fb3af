"""The GPUs of each node, from its newest measurements."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from homeport.core.inference.engines.gpus import GpusOfNode, GpuUse
from homeport.telemetry.shared.latest import Latest

USED: Final = "gpu_memory_used_bytes"
TOTAL: Final = "gpu_memory_total_bytes"
BUSY: Final = "gpu_percent"
TEMPERATURE: Final = "gpu_temperature_celsius"
POWER: Final = "gpu_power_watts"


def gpus_of(latest: Iterable[Latest], nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], GpusOfNode]:
    """Of these nodes, by site and node; one without a GPU is left out."""
    wanted = (each for each in latest if (each.site, each.node_id) in nodes)
    return {(each.site, each.node_id): found for each in wanted if (found := _gpus(each))}


def _gpus(latest: Latest) -> dict[str, GpuUse]:
    used, busy, total, warm, power = (_by_device(latest, name) for name in (USED, BUSY, TOTAL, TEMPERATURE, POWER))
    return {
        device: GpuUse(
            utilization=None if device not in busy else busy[device] / 100,
            memory_used_bytes=used.get(device),
            memory_total_bytes=total.get(device),
            temperature_celsius=warm.get(device),
            power_watts=power.get(device),
        )
        for device in sorted(used.keys() | busy.keys() | warm.keys() | power.keys())
    }


def _by_device(latest: Latest, wanted: str) -> dict[str, float]:
    return {dict(labels).get("gpu", ""): value for (name, labels), value in latest.values.items() if name == wanted}
