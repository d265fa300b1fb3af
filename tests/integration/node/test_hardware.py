"""What a node says of its machine equals what the machine says."""

import os
import platform
import shutil
from pathlib import Path

import psutil
import pytest

from homeport.node.hardware import architecture, discover
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
