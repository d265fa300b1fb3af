"""Intel: `xpu-smi` where it is installed, which knows Intel's graphics cards and their memory. Else the list of
graphics devices from `lspci`, with their use and power from `intel_gpu_top`, which needs rights that an ordinary user
does not have. An integrated GPU uses the machine's own memory, so it reports none."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.hardware.gpu.reading import GPUS_MAX, TEXT_MAX, GpuReading, number, run_tool

XPU: Final = "xpu-smi"
LIST_COMMAND: Final = ("lspci", "-mm", "-d", "8086:")
SAMPLE_MS: Final = 500
USE_COMMAND: Final = ("timeout", "2", "intel_gpu_top", "-J", "-s", str(SAMPLE_MS), "-o", "-", "-n", "2")
MEBIBYTE: Final = 2**20
_CLASSES: Final = ("VGA compatible controller", "3D controller", "Display controller")


def read_intel(*, with_use: bool) -> Sequence[GpuReading]:
    """`with_use` asks how busy they are too, which takes a second."""
    listed = run_tool((XPU, "discovery", "-j"))
    cards = () if listed is None else parse_xpu_list(listed)
    if cards:
        return [_card(each, with_use=with_use) for each in cards]
    output = run_tool(LIST_COMMAND)
    found = () if output is None else parse_lspci(output)
    if not with_use or len(found) != 1:  # The tool shows one device, and does not say which.
        return found
    printed = run_tool(USE_COMMAND)
    return found if printed is None else [parse_intel_gpu_top(printed, found[0])]


# --- xpu-smi --------------------------------------------------------------------------------------------------------


def _card(card: GpuReading, *, with_use: bool) -> GpuReading:
    described = run_tool((XPU, "discovery", "-d", card.index, "-j"))
    measured = run_tool((XPU, "stats", "-d", card.index, "-j")) if with_use else None
    return parse_xpu_device(card, described or "", measured or "")


def parse_xpu_list(output: str) -> Sequence[GpuReading]:
    """`{"device_list": [{"device_id": 0, "device_name": "Intel(R) Arc(TM) Pro B60 Graphics", …}]}`"""
    found = _object(output).get("device_list")
    return [
        GpuReading(str(each["device_id"]), str(each.get("device_name") or "Intel GPU")[:TEXT_MAX], "Intel")
        for each in (found[:GPUS_MAX] if isinstance(found, list) else ())
        if isinstance(each, dict) and type(each.get("device_id")) is int
    ]


def parse_xpu_device(card: GpuReading, described: str, measured: str) -> GpuReading:
    """`{"memory_physical_size_byte": "25669140480", …}`, and `{"device_level": [{"metrics_type":
    "XPUM_STATS_GPU_UTILIZATION", "value": 12.5}, …]}` with memory in MiB."""
    size = number(_object(described).get("memory_physical_size_byte"))
    levels = _object(measured).get("device_level")
    values = {
        str(each.get("metrics_type")): number(each.get("value"))
        for each in (levels if isinstance(levels, list) else ())
        if isinstance(each, dict)
    }
    used = values.get("XPUM_STATS_MEMORY_USED")
    return GpuReading(
        card.index,
        card.model,
        card.manufacturer,
        memory_bytes=0 if size is None else int(size),
        percent=values.get("XPUM_STATS_GPU_UTILIZATION"),
        memory_used_bytes=None if used is None else used * MEBIBYTE,
        temperature_celsius=values.get("XPUM_STATS_GPU_CORE_TEMPERATURE"),
        power_watts=values.get("XPUM_STATS_POWER"),
    )


def _object(output: str) -> Mapping[str, Any]:
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- lspci and intel_gpu_top ----------------------------------------------------------------------------------------


def parse_lspci(output: str) -> Sequence[GpuReading]:
    """`00:02.0 "VGA compatible controller" "Intel Corporation" "Alder Lake-P [Iris Xe]" -r0c …`, a line each."""
    found: list[GpuReading] = []
    for line in output.splitlines():
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        if len(words) >= 4 and words[1] in _CLASSES and words[2].startswith("Intel"):
            found.append(GpuReading(str(len(found)), f"Intel {words[3]}"[:TEXT_MAX], "Intel"))
    return found[:GPUS_MAX]


def parse_intel_gpu_top(output: str, gpu: GpuReading) -> GpuReading:
    """An array that the tool may leave open: `[{"power": {"GPU": 0.5, "unit": "W"}, "engines": {"Render/3D/0":
    {"busy": 12.5, "unit": "%"}}}, …`. The last sample counts: the first one has no time before it."""
    decoder, position, last = json.JSONDecoder(), output.find("{"), None
    while position >= 0:
        try:
            last, end = decoder.raw_decode(output, position)
        except (ValueError, RecursionError):
            break
        position = output.find("{", end)
    if not isinstance(last, dict):
        return gpu
    engines, power = last.get("engines"), last.get("power")
    busy = [number(each.get("busy")) for each in engines.values() if isinstance(each, dict)] if engines else []
    return GpuReading(
        gpu.index,
        gpu.model,
        gpu.manufacturer,
        percent=max((each for each in busy if each is not None), default=None),
        power_watts=number(power.get("GPU")) if isinstance(power, dict) else None,
    )
