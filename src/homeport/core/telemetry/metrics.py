"""The metrics that a node measures, with their units. A node of a newer version may send others; they are stored and
served without a unit."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from homeport.lazy_dataclass import dataclass

NAME_PATTERN: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
LABELS_MAX: Final = 8
LABEL_LENGTH_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Metric:
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_of_container(self) -> bool:
        return "container" in self.labels


_GPU: Final = ("gpu",)
CONTAINER_LABELS: Final = ("deployment", "component", "container")

METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {
        "cpu_percent": Metric("percent", "Use of all cores together."),
        "load_1m": Metric("processes", "Processes that run or wait, over a minute."),
        "memory_used_bytes": Metric("bytes", "Memory that programs use, without caches."),
        "swap_used_bytes": Metric("bytes", "Swap in use."),
        "disk_used_bytes": Metric("bytes", "Used space of the file system with the node's data."),
        "disk_read_bytes_per_second": Metric("bytes/s", "Read from all disks."),
        "disk_write_bytes_per_second": Metric("bytes/s", "Written to all disks."),
        "network_receive_bytes_per_second": Metric("bytes/s", "Received by all interfaces but loopback."),
        "network_send_bytes_per_second": Metric("bytes/s", "Sent by all interfaces but loopback."),
        "temperature_celsius": Metric("celsius", "The highest temperature of each sensor chip.", ("sensor",)),
        "gpu_percent": Metric("percent", "Use of a GPU.", _GPU),
        "gpu_memory_used_bytes": Metric("bytes", "Memory in use of a GPU.", _GPU),
        "gpu_memory_total_bytes": Metric("bytes", "Memory of a GPU.", _GPU),
        "gpu_temperature_celsius": Metric("celsius", "Temperature of a GPU.", _GPU),
        "gpu_power_watts": Metric("watts", "Power that a GPU draws.", _GPU),
        "container_cpu_percent": Metric(
            "percent", "CPU of a container; 100 is one core in full use.", CONTAINER_LABELS
        ),
        "container_memory_bytes": Metric("bytes", "Memory of a container, without its file cache.", CONTAINER_LABELS),
    }
)


def unit_of(name: str) -> str:
    found = METRICS.get(name)
    return "" if found is None else found.unit
