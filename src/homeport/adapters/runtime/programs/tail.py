"""Reads the last lines of a log without reading all of it."""

from collections.abc import Sequence
from pathlib import Path

BLOCK = 65536


def last_lines(paths: Sequence[Path], count: int) -> list[bytes]:
    """The last `count` lines of several consecutive files, oldest file first."""
    lines: list[bytes] = []
    for path in reversed(paths):
        if len(lines) >= count:
            break
        lines = _last(path, count - len(lines)) + lines
    return lines


def _last(path: Path, count: int) -> list[bytes]:
    if not path.is_file():
        return []
    with path.open("rb") as file:
        position = file.seek(0, 2)
        content = b""
        # One newline more than lines wanted, so that the first line is whole.
        while position > 0 and content.count(b"\n") <= count:
            size = min(BLOCK, position)
            position = file.seek(position - size)
            content = file.read(size) + content
    return content.splitlines(keepends=True)[-count:] if count > 0 else []
