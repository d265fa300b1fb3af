"""The use of this machine, as the operating system counts it. A rate needs two readings, so the first has none."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from homeport.adapters.hardware import kernel

SENSORS_MAX = 16
SENSORS_EVERY = 3
"""Sensors are slow to read, and temperatures change slowly: every third reading has fresh ones."""


class MachineReadings:
    def __init__(self, data: Path) -> None:
        """`data` must exist: its file system is the one that is measured."""
        self._data = str(data)
        self._before: dict[str, float] = {}
        self._at = 0.0
        self._busy: tuple[float, float] | None = None
        self._temperatures: dict[str, float] = {}
        self._readings = 0

    def read(self, at: float) -> dict[tuple[str, str], float]:
        """Values by metric and sensor (empty for most); `at` is a monotonic time in seconds."""
        memory = kernel.memory()
        values = {
            ("load_1m", ""): os.getloadavg()[0],
            ("memory_used_bytes", ""): float(memory.total_bytes - memory.available_bytes),
            ("disk_used_bytes", ""): float(shutil.disk_usage(self._data).used),
        }
        if memory.swap_bytes:
            values["swap_used_bytes", ""] = float(memory.swap_bytes - memory.swap_free_bytes)
        if (busy := self._cpu()) is not None:
            values["cpu_percent", ""] = busy
        elapsed, self._at = at - self._at, at
        for name, total in _counters():
            before = self._before.get(name)
            self._before[name] = total
            if before is not None and elapsed > 0 and total >= before:
                values[name, ""] = (total - before) / elapsed
        if self._readings % SENSORS_EVERY == 0:
            self._temperatures = dict(_temperatures())
        self._readings += 1
        return values | {("temperature_celsius", sensor): value for sensor, value in self._temperatures.items()}

    def _cpu(self) -> float | None:
        total, idle = kernel.cpu_ticks()
        before, self._busy = self._busy, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 100.0 * min(max(1.0 - (idle - before[1]) / (total - before[0]), 0.0), 1.0)


def _counters() -> Iterator[tuple[str, float]]:
    """Without interfaces and disks that belong to containers or are parts of others."""
    read, written = kernel.disk_bytes()
    yield "disk_read_bytes_per_second", float(read)
    yield "disk_write_bytes_per_second", float(written)
    received = sent = 0
    for name, into, out in kernel.network_bytes():
        if name != "lo" and not name.startswith(("veth", "br-", "podman", "docker", "cni")):
            received, sent = received + into, sent + out
    yield "network_receive_bytes_per_second", float(received)
    yield "network_send_bytes_per_second", float(sent)


def _temperatures() -> Iterator[tuple[str, float]]:
    """The warmest sensor of each chip."""
    warmest: dict[str, float] = {}
    for chip, value in kernel.temperatures():
        warmest[chip] = max(value, warmest.get(chip, value))
    for chip, value in sorted(warmest.items())[:SENSORS_MAX]:
        yield chip[:64], value
