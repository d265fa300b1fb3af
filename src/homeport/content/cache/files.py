"""Which content a file of the web was when it was fetched: one small file for each source, beside the blobs.

    files/SHA256    JSON: the source, the name of its file, what its server calls the content, digest and size

A record without a digest belongs to a download that is not finished; it says whether that can be resumed.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from homeport.adapters.files.disk import disk_problems
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class CachedFile:
    source: str
    name: str
    validator: str
    digest: Digest | None = None
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Files:
    """These functions block; the cache calls them in threads."""

    root: Path

    def find(self, source: str) -> CachedFile | None:
        """None where there is none; a damaged record counts as none, and is replaced by the next download."""
        with suppress(OSError, ValueError, TypeError, RecursionError):
            found = CachedFile(**json.loads((self.root / key_of(source)).read_bytes()))
            return found if found.source == source else None
        return None

    def put(self, kept: CachedFile) -> None:
        path = self.root / key_of(kept.source)
        draft = path.with_suffix(".new")
        with disk_problems(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(asdict(kept)))
            draft.replace(path)


def key_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
