"""The handoff files of a node: `<data>/engines/*.json`, one per replica. Written by the program that starts an
engine, read by the watcher, which alone tells the site: a provisioner never calls the API.

People and other programs may put files here as well. One that cannot be read is said once, and again when it has
changed; what it said before stays in force, and the others are not touched.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from homeport.adapters.files.folder_watch import FolderWatch
from homeport.core.inference.engines.handoff import Handoff, parse, to_data
from homeport.core.inference.engines.handoff_changes import by_replica, changes
from homeport.errors import InvalidInput
from homeport.log import get_log
from homeport.models.store.index import write_atomically
from homeport.ports import InThread

log = get_log("homeport.models")

FOLDER: Final = "engines"
POLL_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 10.0
"""The interval of looks where the kernel tells of changes."""
FILES_MAX: Final = 256
BYTES_MAX: Final = 256 * 1024

Stamp = tuple[int, int]
"""Modification time and size: what changes when a file does."""


def write_handoff(folder: Path, name: str, handoff: Handoff) -> None:
    """Unchanged content is not written again: its time would say that something had changed."""
    content = (json.dumps(to_data(handoff), indent=2, sort_keys=True) + "\n").encode()
    path = folder / name
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


class HandoffFiles:
    """What the files say, read again only where they changed."""

    def __init__(self, folder: Path, node_id: str) -> None:
        self.folder = self._folder = folder
        self._node_id = node_id
        self._stamps: dict[str, Stamp] = {}
        self._read: dict[str, Handoff] = {}
        self._repeated: tuple[str, ...] = ()

    def look(self) -> dict[tuple[str, str], Handoff]:
        """The replicas by pool and replica id. Synchronous: one folder and, rarely, a file."""
        present = self._present()
        for name in self._stamps.keys() - present.keys():
            del self._stamps[name]
            self._read.pop(name, None)
        for name, stamp in present.items():
            if self._stamps.get(name) != stamp:
                self._stamps[name] = stamp
                self._take(name)
        found, repeated = by_replica(self._read)
        if repeated != self._repeated:
            self._repeated = repeated
            for name in repeated:
                log.warning("handoff file ignored", file=name, why="another file names the same pool and replica")
        return found

    def _present(self) -> dict[str, Stamp]:
        try:
            paths = sorted(path for path in self._folder.glob("*.json") if not path.name.startswith("."))
        except OSError as error:
            log.warning("handoff folder not readable", error=str(error))
            return dict(self._stamps)
        found = {}
        for path in paths[:FILES_MAX]:
            try:
                state = path.stat()
            except OSError:
                continue
            if S_ISREG(state.st_mode):  # opening a pipe would wait for its writer
                found[path.name] = (state.st_mtime_ns, state.st_size)
        return found

    def _take(self, name: str) -> None:
        try:
            with (self._folder / name).open("rb") as file:
                data = json.loads(file.read(BYTES_MAX))
            handoff = parse({**data, "node_id": self._node_id} if isinstance(data, dict) else data)
        except (OSError, ValueError, RecursionError, InvalidInput) as error:
            log.warning("handoff file not readable", file=name, error=str(error)[:500])
            return
        self._read[name] = handoff


async def watch_handoffs(
    files: HandoffFiles,
    announce: Callable[[Mapping[tuple[str, str], Handoff]], None],
    *,
    in_thread: InThread,
    poll_seconds: float = POLL_SECONDS,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Announces what there is, first and whenever it has changed, until cancelled."""
    known: dict[tuple[str, str], Handoff] = {}
    is_first = True
    watch = FolderWatch(files.folder, poll_seconds=poll_seconds, look_seconds=look_seconds)
    with watch.open():
        while True:
            found = await in_thread(files.look)
            changed = changes(known, found)
            for handoff in (*changed.bound, *changed.rebound):
                _narrate_found(handoff, is_new=handoff in changed.bound)
            for key in changed.unbound:
                _narrate("engine withdrawn", key, "An engine is withdrawn from its pool.")
            if changed or is_first:
                announce(found)
            known, is_first = found, False
            await watch.wait()


def _narrate_found(handoff: Handoff, *, is_new: bool) -> None:
    if not handoff.preparation:
        _narrate("engine handed over", handoff.key, "An engine is handed over to its pool.", url=handoff.url)
    elif handoff.problem:
        _narrate("engine not prepared", handoff.key, "An engine could not be prepared.", why=handoff.problem)
    elif is_new:
        _narrate("engine expected", handoff.key, "An engine is prepared for its pool.")


def _narrate(message: str, key: tuple[str, str], human: str, **fields: Any) -> None:
    pool_id, replica_id = key
    log.narrate(
        message,
        actor="handoffs",
        action="autobind",
        target=f"{pool_id}/{replica_id}",
        human=human,
        pool_id=pool_id,
        replica_id=replica_id,
        **fields,
    )
