"""What a node says of its machine equals what the machine says."""

import os
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from homeport.core.model.node import Gpu
from homeport.node.capabilities import architecture, discover, nvidia_gpus
from homeport.vocabulary import ProfileType


def test_the_figures_are_those_of_the_operating_system(tmp_path: Path) -> None:
    seen = discover(tmp_path, engine="podman", engine_version="4.3.1", profile_types=(ProfileType.COMPOSE,))
    kernel = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert seen.cpu_cores == os.cpu_count() == psutil.cpu_count()
    assert seen.memory_bytes == psutil.virtual_memory().total == int(kernel.split()[1]) * 1024
    assert seen.disk_bytes == shutil.disk_usage(tmp_path).total
    assert 0 < seen.disk_free_bytes <= seen.disk_bytes
    assert seen.os == platform.system().lower() == "linux"
    assert (seen.engine, seen.engine_version, seen.profile_types) == ("podman", "4.3.1", (ProfileType.COMPOSE,))


@pytest.mark.parametrize(
    ("machine", "margo"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv7l", "arm"), ("riscv64", "riscv64"), ("s390x", "other")],
)
def test_architectures_have_margo_names(machine: str, margo: str) -> None:
    assert architecture(machine) == margo


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
        return SimpleNamespace(total=8 * 1024**3)


def test_gpus_come_from_the_vendors_library_where_there_is_one() -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    assert nvidia_gpus(lambda _: _Library()) == (Gpu("Tiny 1", "NVIDIA", 8 * 1024**3),)
    assert nvidia_gpus(lambda _: _Library(has_driver=False)) == ()
    assert nvidia_gpus(absent) == ()
