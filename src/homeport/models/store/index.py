"""The index of models on one disk: `index.json`, written as a whole and renamed into place.

A reader sees the index before or after a change, never half of it. A damaged one is set aside and a new one begun:
the files of models are still there, and are found again by their digests when they are next needed.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from homeport.adapters.files.disk import disk_problems
from homeport.core.inference.models.entries import ModelEntry, index_data, read_index
from homeport.errors import InvalidInput, NotFound
from homeport.log import get_log

log = get_log("homeport.models")

INDEX: Final = "index.json"
INDEX_BYTES_MAX: Final = 64 * 2**20
PROVENANCE: Final = "provenance.jsonl"
PROVENANCE_BYTES_MAX: Final = 16 * 2**20


class ModelIndex:
    """Small and synchronous: callers that must not wait for a disk use a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._entries: dict[str, ModelEntry] | None = None

    def entries(self) -> Mapping[str, ModelEntry]:
        with self._lock:
            return dict(self._loaded())

    def get(self, model_id: str) -> ModelEntry:
        """Raises NotFound."""
        with self._lock:
            found = self._loaded().get(model_id)
        if found is None:
            raise NotFound(f'There is no model "{model_id}".', hint="List them:  homeport models list")
        return found

    def find(self, source: str) -> ModelEntry | None:
        """By its reference."""
        return next((entry for entry in self.entries().values() if entry.source == source), None)

    def put(self, entry: ModelEntry) -> None:
        with self._lock:
            self._write({**self._loaded(), entry.id: entry})

    def change(self, model_id: str, change: Callable[[ModelEntry], ModelEntry]) -> ModelEntry:
        """Raises NotFound."""
        with self._lock:
            entries = self._loaded()
            if model_id not in entries:
                raise NotFound(f'There is no model "{model_id}".', hint="List them:  homeport models list")
            changed = change(entries[model_id])
            self._write({**entries, model_id: changed})
            return changed

    def remove(self, model_id: str) -> ModelEntry:
        """Raises NotFound."""
        with self._lock:
            entries = dict(self._loaded())
            if model_id not in entries:
                raise NotFound(f'There is no model "{model_id}".', hint="List them:  homeport models list")
            removed = entries.pop(model_id)
            self._write(entries)
            return removed

    def note(self, line: Mapping[str, object]) -> None:
        """Appends to the record of where models came from."""
        path = self.folder / PROVENANCE
        with disk_problems(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > PROVENANCE_BYTES_MAX:
                path.replace(path.with_suffix(".jsonl.1"))
            with path.open("a") as file:
                file.write(json.dumps(line, sort_keys=True) + "\n")

    def _loaded(self) -> dict[str, ModelEntry]:
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> dict[str, ModelEntry]:
        path = self.folder / INDEX
        if not path.exists():
            return {}
        data, why = None, "it is not an object with a list of models"
        try:
            with path.open("rb") as file:
                data = json.loads(file.read(INDEX_BYTES_MAX))
        except (ValueError, RecursionError) as error:
            why = str(error)
        if not isinstance(data, dict) or not isinstance(data.get("models"), list):
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            log.warning("model index set aside", path=str(aside), error=why)
            return {}
        try:
            entries, problems = read_index(data)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}", hint=error.hint) from error
        for problem in problems:
            log.warning("model entry left out", why=problem)
        return entries

    def _write(self, entries: dict[str, ModelEntry]) -> None:
        with disk_problems(self.folder):
            write_atomically(self.folder / INDEX, json.dumps(index_data(entries), indent=1).encode())
        self._entries = entries


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Durable when this returns: the old content, or the new."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
