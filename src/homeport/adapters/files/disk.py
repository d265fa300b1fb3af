"""Translates disk errors (full, read-only) into one sentence, and checks whether a disk is writable right now."""

import errno
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from anyio import to_thread

from homeport.errors import StorageFull, StorageReadOnly, TransientError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
PROBE_BYTES: Final = 64 * 1024
PROBE_NAME: Final = ".write-probe"
PROBE_SECONDS: Final = 2.0
"""How long a result is cached, however often readiness is checked."""
_FULL_WORDS: Final = re.compile(r"No space left on device|Disk quota exceeded")
_READ_ONLY_WORDS: Final = re.compile(r"Read-only file system")


def disk_problem(error: BaseException | str, place: object) -> TransientError | None:
    """The error to raise where a disk is the cause; of programs and libraries only the message shows that."""
    code = error.errno if isinstance(error, OSError) else None
    words = str(error)
    if code in FULL or _FULL_WORDS.search(words):
        return StorageFull(f"The disk that holds {place} is full; nothing was written.")
    if code == errno.EROFS or _READ_ONLY_WORDS.search(words):
        return StorageReadOnly(f"The disk that holds {place} is read-only; nothing was written.")
    return None


@contextmanager
def disk_problems(place: object) -> Iterator[None]:
    """Translates errors of a full or read-only disk in the block; others pass unchanged."""
    try:
        yield
    except Exception as error:
        found = disk_problem(error, place)
        if found is None:
            raise
        raise found from error


class WriteProbe:
    """Whether a few bytes can be written to a folder: a role whose disk is full is not ready."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked_at = float("-inf")
        self._problem: str | None = None

    async def check(self) -> str:
        """`ok`, or a sentence that says what is wrong."""
        return await to_thread.run_sync(self.check_now)

    def check_now(self) -> str:
        now = time.monotonic()
        if now - self._asked_at >= PROBE_SECONDS:
            self._problem = self._try()
            self._asked_at = now
        return self._problem or "ok"

    def _try(self) -> str | None:
        file = self._folder / PROBE_NAME
        try:
            file.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            return str(disk_problem(error, self._folder) or f"{self._folder} cannot be written: {error.strerror}.")
        finally:
            with suppress(OSError):  # The next write reports it.
                file.unlink(missing_ok=True)
        return None
