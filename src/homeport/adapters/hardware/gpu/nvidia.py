"""NVIDIA: nvidia-ml-py where it is installed (`homeport[nvidia]`), since a call in the process costs next to nothing;
`nvidia-smi` otherwise."""

import csv
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from homeport.adapters.hardware.gpu.reading import GPUS_MAX, TEXT_MAX, GpuReading, number, run_tool

MEBIBYTE: Final = 2**20
FIELDS: Final = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw"
COMMAND: Final = ("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
MANUFACTURER: Final = "NVIDIA"
LINE_MAX: Final = 1_000


def read_nvidia(load: Callable[[str], Any] = import_module) -> Sequence[GpuReading]:
    library = _library(load)
    if library is not None:
        return library
    output = run_tool(COMMAND)
    return () if output is None else parse_nvidia_smi(output)


def parse_nvidia_smi(output: str) -> Sequence[GpuReading]:
    """A line for each GPU: `0, NVIDIA GeForce RTX 3080, 10240, 1024, 37, 61, 221.50`, memory in MiB."""
    found = []
    # No line of the tool is this long, and the reader gives up at one that is far longer.
    lines = [line for line in output.splitlines() if len(line) <= LINE_MAX]
    for row in list(csv.reader(lines, skipinitialspace=True))[:GPUS_MAX]:
        if len(row) != FIELDS.count(",") + 1:
            continue
        index, name, total, used, percent, temperature, power = row
        size, filled = number(total), number(used)
        found.append(
            GpuReading(
                index=index.strip()[:TEXT_MAX],
                model=name.strip()[:TEXT_MAX],
                manufacturer=MANUFACTURER,
                memory_bytes=0 if size is None else int(size * MEBIBYTE),
                percent=number(percent),
                memory_used_bytes=None if filled is None else filled * MEBIBYTE,
                temperature_celsius=number(temperature),
                power_watts=number(power),
            )
        )
    return found


def _library(load: Callable[[str], Any]) -> Sequence[GpuReading] | None:
    """None where it is not installed, or the driver does not respond."""
    try:
        nvml = load("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            return [_reading(nvml, index) for index in range(min(nvml.nvmlDeviceGetCount(), GPUS_MAX))]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None


def _reading(nvml: Any, index: int) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuReading(
        index=str(index),
        model=(name.decode(errors="replace") if isinstance(name, bytes) else str(name))[:TEXT_MAX],
        manufacturer=MANUFACTURER,
        memory_bytes=int(memory.total),
        memory_used_bytes=_said(nvml, lambda: float(memory.used)),
        percent=_said(nvml, lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        temperature_celsius=_said(nvml, lambda: float(nvml.nvmlDeviceGetTemperature(handle, 0))),
        power_watts=_said(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0),
    )


def _said(nvml: Any, ask: Callable[[], float]) -> float | None:
    """Not every GPU supports every question."""
    try:
        return ask()
    except (nvml.NVMLError, AttributeError):
        return None
