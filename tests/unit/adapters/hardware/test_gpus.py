"""GPUs as their manufacturers' tools describe them, in the documented formats. There is no real GPU here."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from homeport.adapters.hardware.gpu.amd import parse_amd_smi, parse_rocm_smi
from homeport.adapters.hardware.gpu.intel import parse_intel_gpu_top, parse_lspci, parse_xpu_device, parse_xpu_list
from homeport.adapters.hardware.gpu.machine import numbered, read_gpus
from homeport.adapters.hardware.gpu.nvidia import parse_nvidia_smi, read_nvidia
from homeport.adapters.hardware.gpu.reading import GpuReading, run_tool

MEBIBYTE = 2**20
NVIDIA_SMI = """0, NVIDIA GeForce RTX 3080, 10240, 1024, 37, 61, 221.50
1, NVIDIA Tesla K80, 11441, 0, [N/A], 33, [Not Supported]
"""
ROCM_SMI = json.dumps(
    {
        "card0": {
            "Temperature (Sensor edge) (C)": "35.0",
            "Temperature (Sensor junction) (C)": "37.0",
            "Average Graphics Package Power (W)": "19.0",
            "GPU use (%)": "3",
            "VRAM Total Memory (B)": "17163091968",
            "VRAM Total Used Memory (B)": "10600448",
            "Card series": "Radeon RX 6800 XT",
        },
        "card1": {"Current Socket Graphics Package Power (W)": "N/A", "GPU use (%)": "N/A"},
        "system": {"Driver version": "6.7.0"},
    }
)
AMD_SMI = json.dumps(
    {
        "gpu_data": [
            {
                "gpu": 0,
                "usage": {"gfx_activity": {"value": 62, "unit": "%"}, "umc_activity": {"value": 3, "unit": "%"}},
                "power": {"socket_power": {"value": 120, "unit": "W"}, "gfx_voltage": "N/A"},
                "temperature": {"edge": "N/A", "hotspot": {"value": 54, "unit": "C"}},
                "mem_usage": {
                    "total_vram": {"value": 16368, "unit": "MB"},
                    "used_vram": {"value": 2242, "unit": "MB"},
                },
            },
            {"gpu": 1, "usage": "N/A", "mem_usage": {"total_vram": {"value": "N/A", "unit": "MB"}}},
        ]
    }
)
AMD_SMI_NAMES = json.dumps({"gpu_data": [{"gpu": 0, "asic": {"market_name": "AMD Radeon RX 7800 XT"}}]})
AMD_SMI_OLD = json.dumps([{"gpu": 0, "mem_usage": {"total_vram": "16368 MB"}, "power": {"socket_power": "7 W"}}])
XPU_LIST = json.dumps(
    {
        "device_list": [
            {"device_id": 0, "device_name": "Intel(R) Arc(TM) Pro B60 Graphics", "pci_bdf_address": "0000:03:00.0"}
        ]
    }
)
XPU_DEVICE = json.dumps({"device_id": 0, "memory_physical_size_byte": "25669140480"})
XPU_STATS = json.dumps(
    {
        "device_id": 0,
        "device_level": [
            {"metrics_type": "XPUM_STATS_GPU_UTILIZATION", "value": 12.5},
            {"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 1024.0},
            {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 48},
            {"metrics_type": "XPUM_STATS_POWER", "value": 31.4},
        ],
    }
)
LSPCI = """00:00.0 "Host bridge" "Intel Corporation" "12th Gen Core" -r02 "Dell" "Device 0b04"
00:02.0 "VGA compatible controller" "Intel Corporation" "Alder Lake-P GT2 [Iris Xe Graphics]" -r0c "Dell" "0b04"
"""
INTEL_GPU_TOP = """[
{"period": {"duration": 16.2, "unit": "ms"}, "engines": {}},
{
  "power": {"GPU": 0.75, "Package": 5.1, "unit": "W"},
  "engines": {
    "Render/3D/0": {"busy": 12.5, "sema": 0.0, "wait": 0.0, "unit": "%"},
    "Video/0": {"busy": 48.0, "sema": 0.0, "wait": 0.0, "unit": "%"}
  }
},
{"power": {"GPU": 0.
"""


class _Library:
    """Answers as NVIDIA's library does on a machine with one card."""

    class NVMLError(Exception):
        """No driver."""

    def __init__(self, *, has_driver: bool = True) -> None:
        self._has_driver = has_driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._has_driver:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"Tiny 1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=8 * 1024**3, used=1024**3)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        raise self.NVMLError


def test_nvidia_smi_prints_a_line_for_each_gpu_and_what_it_cannot_say() -> None:
    assert parse_nvidia_smi(NVIDIA_SMI) == [
        GpuReading("0", "NVIDIA GeForce RTX 3080", "NVIDIA", 10240 * MEBIBYTE, 37.0, 1024.0 * MEBIBYTE, 61.0, 221.5),
        GpuReading("1", "NVIDIA Tesla K80", "NVIDIA", 11441 * MEBIBYTE, None, 0.0, 33.0, None),
    ]


def test_the_library_is_preferred_where_it_is_installed() -> None:
    expected = GpuReading("0", "Tiny 1", "NVIDIA", 8 * 1024**3, 37.0, float(1024**3), 61.0, None)
    assert read_nvidia(lambda _: _Library()) == [expected]


def test_rocm_smi_names_differ_and_not_available_is_nothing() -> None:
    assert parse_rocm_smi("WARNING: a line before\n" + ROCM_SMI) == [
        GpuReading("0", "Radeon RX 6800 XT", "AMD", 17163091968, 3.0, 10600448.0, 35.0, 19.0),
        GpuReading("1", "AMD GPU", "AMD"),
    ]


def test_amd_smi_says_memory_in_powers_of_two_and_names_in_another_list() -> None:
    assert parse_amd_smi(AMD_SMI, AMD_SMI_NAMES) == [
        GpuReading("0", "AMD Radeon RX 7800 XT", "AMD", 16368 * MEBIBYTE, 62.0, 2242.0 * MEBIBYTE, 54.0, 120.0),
        GpuReading("1", "AMD GPU", "AMD"),
    ]
    assert parse_amd_smi(AMD_SMI_OLD, "") == [GpuReading("0", "AMD GPU", "AMD", 16368 * MEBIBYTE, power_watts=7.0)]


def test_xpu_smi_says_the_size_of_the_memory_in_bytes_and_its_use_in_mebibytes() -> None:
    (card,) = parse_xpu_list(XPU_LIST)
    assert card == GpuReading("0", "Intel(R) Arc(TM) Pro B60 Graphics", "Intel")
    assert parse_xpu_device(card, XPU_DEVICE, XPU_STATS) == GpuReading(
        "0", card.model, "Intel", 25669140480, 12.5, 1024.0 * MEBIBYTE, 48.0, 31.4
    )
    assert parse_xpu_device(card, "", '{"error": "device not found", "errno": 20}') == card


def test_intel_devices_come_from_lspci_and_their_use_from_the_last_whole_sample() -> None:
    (gpu,) = parse_lspci(LSPCI)
    assert gpu == GpuReading("0", "Intel Alder Lake-P GT2 [Iris Xe Graphics]", "Intel")
    used = parse_intel_gpu_top(INTEL_GPU_TOP, gpu)
    assert (used.percent, used.power_watts, used.model) == (48.0, 0.75, gpu.model)


@pytest.mark.parametrize(
    "output",
    ["", "{", "[]", "null", '{"card0": 3}', "no such thing", "a, b", "\x00\n\x00", "[" * 100_000, '{"a":' * 100_000],
)
def test_output_of_another_format_is_no_gpu(output: str) -> None:
    assert parse_nvidia_smi(output) == []
    assert list(parse_rocm_smi(output)) == []
    assert list(parse_amd_smi(output, output)) == []
    assert list(parse_xpu_list(output)) == []
    assert parse_lspci(output) == []
    gpu = GpuReading("0", "it", "Intel")
    assert parse_intel_gpu_top(output, gpu).percent is None


def test_the_tools_are_found_on_the_path_and_one_that_fails_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, output, code in (("nvidia-smi", NVIDIA_SMI, 9), ("rocm-smi", ROCM_SMI, 0), ("lspci", LSPCI, 0)):
        _tool(tmp_path, name, f"/bin/cat <<'.'\n{output}\n.\nexit {code}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [gpu.manufacturer for gpu in read_gpus()] == ["AMD", "AMD", "Intel"]


def test_the_newer_tools_are_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, "rocm-smi", "echo '{\"card7\": {}}'")
    _tool(tmp_path, "lspci", f"/bin/cat <<'.'\n{LSPCI}\n.")
    _tool(tmp_path, "amd-smi", f"case $1 in metric) echo '{AMD_SMI}';; static) echo '{AMD_SMI_NAMES}';; esac")
    said = {"discovery -j": XPU_LIST, "discovery -d 0 -j": XPU_DEVICE, "stats -d 0 -j": XPU_STATS}
    cases = " ".join(f"\"{asked}\") echo '{output}';;" for asked, output in said.items())
    _tool(tmp_path, "xpu-smi", f'case "$*" in {cases} esac')
    monkeypatch.setenv("PATH", str(tmp_path))
    radeon, _, arc = read_gpus()
    assert (radeon.index, radeon.model, radeon.memory_bytes) == ("0", "AMD Radeon RX 7800 XT", 16368 * MEBIBYTE)
    assert (arc.index, arc.memory_bytes, arc.memory_used_bytes) == ("intel-0", 25669140480, 1024.0 * MEBIBYTE)
    assert [gpu.percent for gpu in read_gpus(with_use=False) if gpu.manufacturer == "Intel"] == [None]


def _tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_gpus_of_several_makers_in_one_machine_have_different_numbers() -> None:
    """Each maker counts from 0. Under one number, the graphics of a processor would hide the card beside it."""
    nvidia, amd, intel = parse_nvidia_smi(NVIDIA_SMI), parse_rocm_smi(ROCM_SMI), parse_lspci(LSPCI)
    assert [gpu.index for gpu in numbered(nvidia, amd, intel)] == ["0", "1", "amd-0", "amd-1", "intel-0"]
    assert [gpu.index for gpu in numbered([], amd, intel)] == ["0", "1", "intel-0"]
    assert [gpu.index for gpu in numbered([], [], intel)] == ["0"]


def test_a_machine_without_tools_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_gpus() == []
    assert run_tool(["nvidia-smi"]) is None
