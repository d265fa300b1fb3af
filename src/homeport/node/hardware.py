"""The capabilities of this machine, as reported by the operating system."""

import os
import platform
import shutil
from pathlib import Path

from homeport.adapters.hardware import kernel
from homeport.adapters.hardware.gpu.machine import installed_gpus
from homeport.core.model.node import Capabilities
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
    """`data` must exist: components fill its file system."""
    disk = shutil.disk_usage(data)
    return Capabilities(
        cpu_cores=os.cpu_count() or 1,
        memory_bytes=kernel.memory().total_bytes,
        disk_bytes=disk.total,
        disk_free_bytes=disk.free,
        os=platform.system().lower(),
        architecture=architecture(platform.machine()),
        engine=engine,
        engine_version=engine_version,
        profile_types=profile_types,
        gpus=installed_gpus(),
    )


def architecture(machine: str) -> str:
    return MARGO_ARCHITECTURES.get(machine.lower(), "other")
