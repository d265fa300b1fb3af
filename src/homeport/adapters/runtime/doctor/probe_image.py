"""The smallest possible image: one program that exits with 0 at once. For testing whether containers start at all.

Built here, byte by byte, because a machine with a broken engine may have no image and no way to pull one.
"""

import io
import platform
import struct
import tarfile
from pathlib import Path

_LOAD_ADDRESS = 0x400000
_HEADERS = 0x40 + 0x38
_CODE = {
    # exit(0) by each architecture's own convention, with its ELF machine number.
    "x86_64": (62, bytes.fromhex("31ff b83c000000 0f05")),
    "aarch64": (183, bytes.fromhex("000080d2 a80b80d2 010000d4")),
}


def can_make_probe() -> bool:
    return platform.machine() in _CODE


def write_probe_image(path: Path) -> None:
    """A tar of the image's root, for `import`."""
    program = _elf(*_CODE[platform.machine()])
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("probe")
        entry.size, entry.mode = len(program), 0o755
        tar.addfile(entry, io.BytesIO(program))


def write_probe_root(folder: Path) -> None:
    """The image's root as a folder, for an engine that takes one."""
    folder.mkdir()
    (folder / "probe").write_bytes(_elf(*_CODE[platform.machine()]))
    (folder / "probe").chmod(0o755)


def _elf(machine: int, code: bytes) -> bytes:
    """A 64-bit executable with one loadable segment: the file itself."""
    size = _HEADERS + len(code)
    entry = _LOAD_ADDRESS + _HEADERS
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, entry, 0x40, 0, 0, 0x40, 0x38, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 0x1000)
    return identity + header + segment + code
