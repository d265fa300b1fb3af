"""What the Linux kernel counts of this machine, read from /proc and /sys.

A library for this takes a twentieth of a role's start and a megabyte in every node, for a dozen numbers.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from homeport.lazy_dataclass import dataclass

PROC: Final = Path("/proc")
SYS: Final = Path("/sys")
SECTOR_BYTES: Final = 512
"""In /proc/diskstats, whatever the disk's own sectors are."""
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int
    available_bytes: int
    swap_bytes: int
    swap_free_bytes: int


def memory() -> Memory:
    found = {}
    for line in (PROC / "meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        found[name] = int(value.split()[0]) * 1024
    # Kernels before 3.14 do not say what is available.
    available = found.get("MemAvailable", found["MemFree"] + found.get("Cached", 0))
    return Memory(found["MemTotal"], available, found.get("SwapTotal", 0), found.get("SwapFree", 0))


def cpu_ticks() -> tuple[float, float]:
    """All of them, and those in which nothing was to do. Guest time is part of user time."""
    with (PROC / "stat").open() as file:
        ticks = [float(each) for each in file.readline().split()[1:9]]
    return sum(ticks), sum(ticks[3:5])


def disk_bytes() -> tuple[int, int]:
    """Read and written by all disks. Partitions, and devices made of other ones, would count twice."""
    read = written = 0
    for line in (PROC / "diskstats").read_text().splitlines():
        fields = line.split()
        if _is_disk(SYS / "block" / fields[2].replace("/", "!")):
            read, written = read + int(fields[5]), written + int(fields[9])
    return read * SECTOR_BYTES, written * SECTOR_BYTES


def _is_disk(folder: Path) -> bool:
    """Devices made of others (loop, RAID, encrypted ones) have no hardware below them."""
    return os.path.exists(folder / "device")  # noqa: PTH110 - for every device, each time


def network_bytes() -> Iterator[tuple[str, int, int]]:
    """Interface, bytes received and sent."""
    for line in (PROC / "net" / "dev").read_text().splitlines()[2:]:
        name, _, counts = line.rpartition(":")
        fields = counts.split()
        yield name.strip(), int(fields[0]), int(fields[8])


def temperatures() -> Iterator[tuple[str, float]]:
    """Chip and degrees Celsius of each sensor; nothing where the system has none, as in most virtual machines."""
    for sensor in sorted((SYS / "class" / "hwmon").glob("hwmon*/temp*_input")):
        try:
            yield (sensor.parent / "name").read_text().strip(), int(sensor.read_text()) / 1000
        except (OSError, ValueError):
            continue  # a sensor that is off cannot be read


def process_tree(pid: int) -> tuple[float, int]:
    """Seconds of CPU and resident bytes of a process and all its children. Raises OSError when it has ended."""
    found = {pid: _process(pid)}
    everything = {}
    for name in os.listdir(PROC):  # noqa: PTH208 - names are all that is needed
        if name.isdigit() and int(name) != pid:
            try:
                everything[int(name)] = _process(int(name))
            except OSError:
                continue  # it has ended meanwhile
    news = {pid}
    while news:
        news = {each for each, process in everything.items() if process[0] in news and each not in found}
        found |= {each: everything[each] for each in news}
    return sum(process[1] for process in found.values()), sum(process[2] for process in found.values())


def _process(pid: int) -> tuple[int, float, int]:
    """Parent, seconds of CPU, resident bytes."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - for every process
        fields = file.read().rpartition(b")")[2].split()  # the name before it may have spaces
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND, int(fields[21]) * PAGE_BYTES
