"""Refuses a damaged model file before an engine is started with it."""

import mmap
from pathlib import Path

from homeport.core.inference.models.gguf import damage_of
from homeport.errors import InvalidInput


def refuse_damaged(path: Path) -> None:
    """Of files that say they are GGUF. Raises InvalidInput; OSError where it cannot be read."""
    if path.suffix.lower() != ".gguf" or not path.is_file():
        return
    with path.open("rb") as file:
        if not path.stat().st_size:
            found: str | None = "is empty"
        else:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                found = damage_of(view)
    if found is not None:
        raise InvalidInput(f"{path} {found}.", hint="Fetch it again, and compare its digest with its source's.")
