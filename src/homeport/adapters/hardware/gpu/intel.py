"""Intel: the list of graphics devices from `lspci`, their use and power from `intel_gpu_top`, which needs rights that
an ordinary user does not have. An integrated GPU uses the machine's own memory, so it reports none."""

import json
import shlex
from collections.abc import Sequence
from typing import Final

from homeport.adapters.hardware.gpu.reading import GPUS_MAX, TEXT_MAX, GpuReading, number, run_tool

LIST_COMMAND: Final = ("lspci", "-mm", "-d", "8086:")
SAMPLE_MS: Final = 500
USE_COMMAND: Final = ("timeout", "2", "intel_gpu_top", "-J", "-s", str(SAMPLE_MS), "-o", "-", "-n", "2")
_CLASSES: Final = ("VGA compatible controller", "3D controller", "Display controller")


def read_intel(*, with_use: bool) -> Sequence[GpuReading]:
    """`with_use` runs `intel_gpu_top` too, for a second."""
    output = run_tool(LIST_COMMAND)
    found = () if output is None else parse_lspci(output)
    if not with_use or len(found) != 1:  # The tool shows one device, and does not say which.
        return found
    printed = run_tool(USE_COMMAND)
    return found if printed is None else [parse_intel_gpu_top(printed, found[0])]


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
        except ValueError:
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
