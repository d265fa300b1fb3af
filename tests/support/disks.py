"""Disks that are small, and disks that are full."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SMALL_MEGABYTES = 8
PAGE_BYTES = 4096


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int = SMALL_MEGABYTES) -> Iterator[Path]:
    """A disk of its own for one folder; also unmounted when somebody still uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Nothing is free meanwhile."""
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(PAGE_BYTES)):
                pass
        for log in disk.glob("*.log"):  # the rest of its last page is not free either
            with log.open("ab") as file:
                file.write(b" " * (-file.tell() % PAGE_BYTES))
        yield
    finally:
        ballast.unlink()
