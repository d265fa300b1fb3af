"""AMD: `rocm-smi`, whose JSON has a text for each value, under names that differ between releases."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from homeport.adapters.hardware.gpu.reading import GPUS_MAX, TEXT_MAX, GpuReading, number, run_tool

COMMAND: Final = (
    "rocm-smi",
    "--showproductname",
    "--showmeminfo",
    "vram",
    "--showuse",
    "--showtemp",
    "--showpower",
    "--json",
)
_MODEL: Final = ("card series", "card model", "device name")
_POWER: Final = ("average graphics package power (w)", "current socket graphics package power (w)")
_TEMPERATURE: Final = ("temperature (sensor edge) (c)", "temperature (sensor junction) (c)")


def read_amd() -> Sequence[GpuReading]:
    output = run_tool(COMMAND)
    return () if output is None else parse_rocm_smi(output)


def parse_rocm_smi(output: str) -> Sequence[GpuReading]:
    """`{"card0": {"GPU use (%)": "3", "VRAM Total Memory (B)": "17163091968", …}, "system": {…}}`"""
    try:
        report = json.loads(output[output.index("{") :])
    except ValueError:
        return ()
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
        manufacturer="AMD",
        memory_bytes=0 if total is None else int(total),
        percent=_first(card, ("gpu use (%)",)),
        memory_used_bytes=_first(card, ("vram total used memory (b)",)),
        temperature_celsius=_first(card, _TEMPERATURE),
        power_watts=_first(card, _POWER),
    )


def _first(card: Mapping[str, str], names: Sequence[str]) -> float | None:
    return next((value for name in names if (value := number(card.get(name))) is not None), None)
