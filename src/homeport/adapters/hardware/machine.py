"""The use of this machine, as the operating system counts it. A rate needs two readings, so the first has none."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

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
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        values = {
            ("load_1m", ""): os.getloadavg()[0],
            ("memory_used_bytes", ""): float(memory.total - memory.available),
            ("disk_used_bytes", ""): float(psutil.disk_usage(self._data).used),
        }
        if swap.total:
            values["swap_used_bytes", ""] = float(swap.used)
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
        times = psutil.cpu_times()
        total = sum(times[:8])  # Guest time is part of user time.
        idle = times.idle + getattr(times, "iowait", 0.0)
        before, self._busy = self._busy, (total, idle)
        if before is None or total <= before[0]:
            return None
        return 100.0 * min(max(1.0 - (idle - before[1]) / (total - before[0]), 0.0), 1.0)


def _counters() -> Iterator[tuple[str, float]]:
    """Without interfaces and disks that belong to containers or are parts of others."""
    disks = psutil.disk_io_counters(perdisk=False)
    if disks is not None:
        yield "disk_read_bytes_per_second", float(disks.read_bytes)
        yield "disk_write_bytes_per_second", float(disks.write_bytes)
    received = sent = 0
    for name, each in psutil.net_io_counters(pernic=True).items():
        if name != "lo" and not name.startswith(("veth", "br-", "podman", "docker", "cni")):
            received, sent = received + each.bytes_recv, sent + each.bytes_sent
    yield "network_receive_bytes_per_second", float(received)
    yield "network_send_bytes_per_second", float(sent)


def _temperatures() -> Iterator[tuple[str, float]]:
    """Nothing where the system shows none, as in most virtual machines."""
    read = getattr(psutil, "sensors_temperatures", None)
    try:
        found = {} if read is None else read()
    except OSError:
        return
    for chip, sensors in sorted(found.items())[:SENSORS_MAX]:
        if sensors:
            yield chip[:64], max(float(each.current) for each in sensors)
