"""Texts of Orchion's agents, to and from numbers."""

import pytest

from homeport.core.inference.engines.gpus import GpuUse
from homeport.core.model.node import Capabilities, Gpu
from homeport.wire.orchion.texts import (
    Measured,
    Texts,
    bytes_in,
    capabilities_of,
    measured_of,
    samples_of,
    texts_of,
)


def test_a_machine_with_a_gpu_reads_as_an_agent_would_write_it() -> None:
    gpu = Gpu("NVIDIA GeForce RTX 3080", "NVIDIA", 10 * 2**30)
    machine = Capabilities(16, 32 * 2**30, 0, 0, "linux", "amd64", gpus=(gpu,))
    texts = texts_of(machine)
    assert texts == Texts("16 cores", "32.00 GB", "linux/amd64", "NVIDIA GeForce RTX 3080", "10.00 GB")
    assert capabilities_of(texts) == machine


def test_a_machine_without_a_gpu_says_so() -> None:
    machine = Capabilities(4, 2**30, 0, 0, "linux", "arm64")
    assert texts_of(machine).gpu_type == "No GPU detected"
    assert capabilities_of(texts_of(machine)) == machine


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("15.50 GB", int(15.5 * 2**30)),
        ("~8 GB (approximate)", 8 * 2**30),
        ("10240 MiB", 10 * 2**30),
        ("512", 512),
        ("", 0),
        ("plenty", 0),
        ("9" * 30 + " TB", 2**50),
        ("-5 GB", 5 * 2**30),
    ],
)
def test_sizes_are_read_as_far_as_they_can_be(text: str, count: int) -> None:
    assert bytes_in(text) == count


def test_an_unknown_maker_is_left_empty() -> None:
    assert capabilities_of(Texts("", "", "", "Voodoo 2", "")).gpus == (Gpu("Voodoo 2", "", 0),)


def test_what_was_measured_of_all_gpus_is_one_text_each() -> None:
    gpus = {"0": GpuUse(0.5, 2.0**30, 4.0 * 2**30, 61.0, 200.25), "1": GpuUse(None, 2.0**30, 4.0 * 2**30, 70.4, None)}
    assert measured_of(gpus) == Measured("2.00 GB", "6.00 GB", "70 C", "200.2 W")
    assert measured_of({}) == Measured()
    assert measured_of({"0": GpuUse(0.5)}) == Measured(), "what is not said is left empty"


@pytest.mark.parametrize(
    ("texts", "total", "values"),
    [
        (Measured("1.00 GB", "", "61 C", "20.5 W"), "", {"used": 2**30, "temperature": 61.0, "power": 20.5}),
        (Measured("", "3.00 GB"), "4.00 GB", {"used": 2**30, "total": 4 * 2**30}),
        (Measured("", "3.00 GB"), "", {}),
        (Measured("N/A", "N/A", "N/A", "N/A"), "N/A", {}),
        (Measured("0.00 GB"), "4.00 GB", {"used": 0, "total": 4 * 2**30}),
    ],
)
def test_measurements_are_those_that_an_agent_says(texts: Measured, total: str, values: dict[str, float]) -> None:
    names = {
        "gpu_memory_used_bytes": "used",
        "gpu_memory_total_bytes": "total",
        "gpu_temperature_celsius": "temperature",
        "gpu_power_watts": "power",
    }
    assert {names[each.name]: each.value for each in samples_of(texts, total=total)} == values
