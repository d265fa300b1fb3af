"""Builds tar.gz files from lists of entries, good and bad ones alike."""

import gzip
import io
import tarfile
from collections.abc import Sequence
from typing import Any

TYPES = {
    "dir": tarfile.DIRTYPE,
    "file": tarfile.REGTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "char": tarfile.CHRTYPE,
    "fifo": tarfile.FIFOTYPE,
}


def archive_of(entries: Sequence[dict[str, Any]], *, level: int = 9) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for entry in entries:
            member = tarfile.TarInfo(entry["name"])
            member.type = TYPES[entry["type"]]
            member.linkname = entry.get("target", "")
            member.mode = int(entry.get("mode", "644"), 8)
            content = entry.get("content", b"services: {}\n") if entry["type"] == "file" else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), compresslevel=level, mtime=0)
