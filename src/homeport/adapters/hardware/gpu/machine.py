"""All GPUs of this machine. A machine without one is found to have none in well under a millisecond."""

from collections.abc import Sequence
from functools import cache

from homeport.adapters.hardware.gpu.amd import read_amd
from homeport.adapters.hardware.gpu.intel import read_intel
from homeport.adapters.hardware.gpu.nvidia import read_nvidia
from homeport.adapters.hardware.gpu.reading import GpuReading
from homeport.core.model.node import Gpu


def read_gpus(*, with_use: bool = True) -> Sequence[GpuReading]:
    """Blocks while the tools run: seconds with a driver that does not respond."""
    return [*read_nvidia(), *read_amd(), *read_intel(with_use=with_use)]


@cache
def installed_gpus() -> tuple[Gpu, ...]:
    """Found once: GPUs do not come and go while a machine runs."""
    return tuple(Gpu(each.model, each.manufacturer, each.memory_bytes) for each in read_gpus(with_use=False))
