"""AMD: `amd-smi`, which releases of ROCm since 6 bring along; `rocm-smi` where that is missing. Both write JSON, in
forms that differ between releases."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homeport.adapters.hardware.gpu.reading import GPUS_MAX, TEXT_MAX, GpuReading, number, run_tool

METRICS_COMMAND: Final = ("amd-smi", "metric", "--json")
"""Without options for single values: in virtual machines some of them do not exist, and the tool refuses all then."""
NAMES_COMMAND: Final = ("amd-smi", "static", "--asic", "--json")
ROCM_COMMAND: Final = (
    "rocm-smi",
    "--showproductname",
    "--showmeminfo",
    "vram",
    "--showuse",
    "--showtemp",
    "--showpower",
    "--json",
)
MANUFACTURER: Final = "AMD"
_MODEL: Final = ("card series", "card model", "device name")
_POWER: Final = ("average graphics package power (w)", "current socket graphics package power (w)")
_TEMPERATURE: Final = ("temperature (sensor edge) (c)", "temperature (sensor junction) (c)")
_BYTES: Final = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
"""amd-smi divides by powers of two, whatever the unit is called."""


def read_amd() -> Sequence[GpuReading]:
    metrics = run_tool(METRICS_COMMAND)
    found = () if metrics is None else parse_amd_smi(metrics, run_tool(NAMES_COMMAND) or "")
    if found:
        return found
    output = run_tool(ROCM_COMMAND)
    return () if output is None else parse_rocm_smi(output)


# --- amd-smi --------------------------------------------------------------------------------------------------------


def parse_amd_smi(metrics: str, names: str) -> Sequence[GpuReading]:
    """`{"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 62, "unit": "%"}}, …}]}`; the list alone before
    ROCm 7. `names` is what the tool says of the hardware itself."""
    models = {str(each.get("gpu")): _inside(each, "asic", "market_name") for each in _devices(names)}
    return [_amd_smi_reading(str(each["gpu"]), each, models) for each in _devices(metrics) if "gpu" in each]


def _devices(output: str) -> list[Mapping[str, Any]]:
    report = _json(output)
    devices = report.get("gpu_data") if isinstance(report, dict) else report
    return [each for each in devices[:GPUS_MAX] if isinstance(each, dict)] if isinstance(devices, list) else []


def _amd_smi_reading(index: str, device: Mapping[str, Any], models: Mapping[str, Any]) -> GpuReading:
    total = _quantity(_inside(device, "mem_usage", "total_vram"))
    temperatures = (_quantity(_inside(device, "temperature", name)) for name in ("edge", "hotspot", "mem"))
    powers = ("socket_power", "current_socket_power", "average_socket_power")
    return GpuReading(
        index=index[:TEXT_MAX],
        model=str(models.get(index) or "AMD GPU")[:TEXT_MAX],
        manufacturer=MANUFACTURER,
        memory_bytes=0 if total is None else int(total),
        percent=_quantity(_inside(device, "usage", "gfx_activity")),
        memory_used_bytes=_quantity(_inside(device, "mem_usage", "used_vram")),
        temperature_celsius=next((each for each in temperatures if each is not None), None),
        power_watts=next(
            (value for name in powers if (value := _quantity(_inside(device, "power", name))) is not None), None
        ),
    )


def _inside(device: Mapping[str, Any], block: str, name: str) -> Any:
    found = device.get(block)
    return found.get(name) if isinstance(found, dict) else None


def _quantity(report: Any) -> float | None:
    """`{"value": 2242, "unit": "MB"}`, `"2242 MB"` in the first releases, or `"N/A"`. Memory in bytes."""
    if isinstance(report, dict):
        report = f"{report.get('value')} {report.get('unit', '')}"
    value, _, unit = str(report).strip().partition(" ")
    found = number(value)
    return None if found is None else found * _BYTES.get(unit.strip().upper(), 1)


# --- rocm-smi -------------------------------------------------------------------------------------------------------


def parse_rocm_smi(output: str) -> Sequence[GpuReading]:
    """`{"card0": {"GPU use (%)": "3", "VRAM Total Memory (B)": "17163091968", …}, "system": {…}}`"""
    report = _json(output[max(output.find("{"), 0) :])
    cards = report.items() if isinstance(report, dict) else ()
    return [
        _reading(name.removeprefix("card"), {str(key).lower(): str(value) for key, value in card.items()})
        for name, card in sorted(cards)[:GPUS_MAX]
        if name.startswith("card") and isinstance(card, dict)
    ]


def _reading(index: str, card: Mapping[str, str]) -> GpuReading:
    total = _first(card, ("vram total memory (b)",))
    return GpuReading(
        index=index[:TEXT_MAX],
        model=next((card[name] for name in _MODEL if card.get(name)), "AMD GPU")[:TEXT_MAX],
        manufacturer=MANUFACTURER,
        memory_bytes=0 if total is None else int(total),
        percent=_first(card, ("gpu use (%)",)),
        memory_used_bytes=_first(card, ("vram total used memory (b)",)),
        temperature_celsius=_first(card, _TEMPERATURE),
        power_watts=_first(card, _POWER),
    )


def _first(card: Mapping[str, str], names: Sequence[str]) -> float | None:
    return next((value for name in names if (value := number(card.get(name))) is not None), None)


def _json(output: str) -> Any:
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return None
