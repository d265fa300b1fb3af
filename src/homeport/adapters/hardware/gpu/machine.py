"""All GPUs of this machine. A machine without one is found to have none in well under a millisecond."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from homeport.adapters.hardware.gpu.amd import read_amd
from homeport.adapters.hardware.gpu.intel import read_intel
from homeport.adapters.hardware.gpu.nvidia import read_nvidia
from homeport.adapters.hardware.gpu.reading import GpuReading
from homeport.core.model.node import Gpu


def read_gpus(*, with_use: bool = True) -> Sequence[GpuReading]:
    """Blocks while the tools run: seconds with a driver that does not respond."""
    return numbered(read_nvidia(), read_amd(), read_intel(with_use=with_use))


def numbered(*makers: Sequence[GpuReading]) -> Sequence[GpuReading]:
    """Every maker's tool counts from 0. The first keeps its numbers, which are those that engines are given; those of
    the others get their maker's name where a number is taken."""
    found: dict[str, GpuReading] = {}
    for gpu in (each for maker in makers for each in maker):
        index = gpu.index if gpu.index not in found else f"{gpu.manufacturer.lower()}-{gpu.index}"
        found[index] = replace(gpu, index=index)
    return list(found.values())


@cache
def installed_gpus() -> tuple[Gpu, ...]:
    """Found once: GPUs do not come and go while a machine runs."""
    return tuple(Gpu(each.model, each.manufacturer, each.memory_bytes) for each in read_gpus(with_use=False))
