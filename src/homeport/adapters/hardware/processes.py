"""CPU and memory of a container or program, from the control group of its first process: two small files, whatever
the engine. A process without a group of its own is measured with its children.
"""

import os
from pathlib import Path
from typing import Final

from homeport.adapters.hardware import kernel
from homeport.lazy_dataclass import dataclass

CGROUPS: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    cpu_seconds: float
    """Since it was started."""
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessMeter:
    """Where the numbers of one container are."""

    pid: int
    cpu: Path | None
    """The folder of its control group; None for a process that shares the node's own."""
    memory: Path | None

    def read(self) -> ProcessUsage | None:
        """None when it has ended."""
        try:
            if self.cpu is None or self.memory is None:
                return ProcessUsage(*kernel.process_tree(self.pid))
            return ProcessUsage(_cpu_seconds(self.cpu), _memory_bytes(self.memory))
        except (OSError, ValueError):
            return None


def meter(pid: int, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> ProcessMeter | None:
    """None for a process that has ended."""
    try:
        own = _groups((proc / "self" / "cgroup").read_text(), cgroups)
        found = _groups((proc / str(pid) / "cgroup").read_text(), cgroups)
    except OSError:
        return None
    cpu, memory = found.get("cpuacct", found.get("")), found.get("memory", found.get(""))
    is_own_group = cpu == own.get("cpuacct", own.get("")) or memory == own.get("memory", own.get(""))
    if is_own_group or cpu is None or memory is None or not (cpu.is_dir() and memory.is_dir()):
        return ProcessMeter(pid, None, None)
    return ProcessMeter(pid, cpu, memory)


def _groups(text: str, cgroups: Path) -> dict[str, Path]:
    """The folder of each controller (version 1), and of all of them under the name "" (version 2)."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            # Debian mounts cpu and cpuacct together; elsewhere each has a folder of its own.
            folder = next((cgroups / each for each in (name, names) if (cgroups / each).is_dir()), cgroups / name)
            found[name] = folder / path.lstrip("/")
    if (cgroups / "unified").is_dir() and "" in found:
        del found[""]
    return found


def _cpu_seconds(folder: Path) -> float:
    """Version 1 counts nanoseconds, version 2 microseconds."""
    try:
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    except FileNotFoundError:
        return int(_field(folder / "cpu.stat", "usage_usec")) / 1e6


def _memory_bytes(folder: Path) -> int:
    """Without the file cache that the kernel would give back first, as `docker stats` shows it."""
    try:
        used, name = int((folder / "memory.usage_in_bytes").read_text()), "total_inactive_file"
    except FileNotFoundError:
        used, name = int((folder / "memory.current").read_text()), "inactive_file"
    return max(used - int(_field(folder / "memory.stat", name)), 0)


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return value
    raise ValueError(f"{path} has no {name}")


def is_alive(pid: int) -> bool:
    return os.path.exists(PROC / str(pid))  # noqa: PTH110 - a third of the time of Path.exists, for each container
