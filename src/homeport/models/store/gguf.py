"""What the header of a model file says: refuses a damaged one before an engine is started with it."""

import mmap
from functools import lru_cache
from pathlib import Path

from homeport.core.inference.models.gguf import damage_of, kv_token_bytes
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


def cache_bytes_per_token(path: Path) -> int:
    """0 where that is not known."""
    try:
        found = path.stat()
        is_model = path.suffix.lower() == ".gguf" and path.is_file() and found.st_size > 0
        return _cache_bytes(path, found.st_mtime_ns, found.st_size) if is_model else 0
    except OSError:
        return 0


@lru_cache(maxsize=64)
def _cache_bytes(path: Path, changed_ns: int, size: int) -> int:
    """Once for each file: vocabularies have hundreds of thousands of words."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        memoryview(content) as view,
    ):
        return kv_token_bytes(view) or 0
