"""CPU and memory of containers, from the files of both versions of control groups."""

import os
from pathlib import Path

import pytest

from homeport.adapters.hardware.processes import ProcessUsage, meter

PID = 4242


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "self" / "cgroup", "4:memory:/own\n2:cpu,cpuacct:/\n0::/\n")
    write(proc / str(PID) / "cgroup", "4:memory:/pod/x\n2:cpu,cpuacct:/pod/x\n0::/\n")
    (groups / "unified").mkdir(parents=True)
    write(groups / "cpu,cpuacct" / "pod" / "x" / "cpuacct.usage", "2500000000\n")
    write(groups / "memory" / "pod" / "x" / "memory.usage_in_bytes", "5000\n")
    write(groups / "memory" / "pod" / "x" / "memory.stat", "cache 3\ntotal_inactive_file 1000\n")
    found = meter(PID, proc=proc, cgroups=groups)
    assert found is not None
    assert found.read() == ProcessUsage(2.5, 4000)


def test_version_2_has_one_folder(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "self" / "cgroup", "0::/system.slice/homeport.service\n")
    write(proc / str(PID) / "cgroup", "0::/machine.slice/libpod-x.scope\n")
    folder = groups / "machine.slice" / "libpod-x.scope"
    write(folder / "cpu.stat", "usage_usec 1500000\nuser_usec 1\n")
    write(folder / "memory.current", "900\n")
    write(folder / "memory.stat", "anon 1\ninactive_file 1000\n")
    found = meter(PID, proc=proc, cgroups=groups)
    assert found is not None
    assert found.read() == ProcessUsage(1.5, 0)
    (folder / "cpu.stat").unlink()
    assert found.read() is None, "it has ended"


def test_a_program_in_the_nodes_own_group_is_measured_with_its_children() -> None:
    found = meter(os.getpid())
    assert found is not None
    usage = found.read()
    assert usage is not None
    assert usage.memory_bytes > 1_000_000
    assert usage.cpu_seconds > 0


def test_a_process_that_has_ended_has_no_meter(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "self" / "cgroup", "0::/\n")
    assert meter(PID, proc=tmp_path / "proc", cgroups=tmp_path) is None


@pytest.mark.parametrize("content", ["", "nonsense"])
def test_unreadable_numbers_are_no_reading(tmp_path: Path, content: str) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "self" / "cgroup", "0::/a\n")
    write(proc / str(PID) / "cgroup", "0::/b\n")
    write(groups / "b" / "cpu.stat", content)
    found = meter(PID, proc=proc, cgroups=groups)
    assert found is not None
    assert found.read() is None
