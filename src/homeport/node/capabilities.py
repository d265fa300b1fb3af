"""What this machine can do, in the operating system's own figures."""

import platform
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from homeport.core.model.node import Capabilities, Gpu
from homeport.vocabulary import ProfileType

MARGO_ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "riscv64": "riscv64",
}


def discover(
    data: Path, *, engine: str = "", engine_version: str = "", profile_types: tuple[ProfileType, ...] = ()
) -> Capabilities:
    """`data` must exist: its file system is the one that components fill."""
    disk = psutil.disk_usage(str(data))
    return Capabilities(
        cpu_cores=psutil.cpu_count(logical=True) or 1,
        memory_bytes=psutil.virtual_memory().total,
        disk_bytes=disk.total,
        disk_free_bytes=disk.free,
        os=platform.system().lower(),
        architecture=architecture(platform.machine()),
        engine=engine,
        engine_version=engine_version,
        profile_types=profile_types,
        gpus=nvidia_gpus(),
    )


def architecture(machine: str) -> str:
    return MARGO_ARCHITECTURES.get(machine.lower(), "other")


def nvidia_gpus(load: Callable[[str], Any] = import_module) -> tuple[Gpu, ...]:
    """Through nvidia-ml-py where it is installed; none otherwise, and none when the driver does not answer."""
    try:
        nvml = load("pynvml")
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            return tuple(
                Gpu(
                    model=_text(nvml.nvmlDeviceGetName(handle)),
                    manufacturer="NVIDIA",
                    memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
                for handle in handles
            )
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return ()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
