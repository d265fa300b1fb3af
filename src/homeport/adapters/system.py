"""The real clock, real ids, and the limits of the process."""

import resource
import time
import uuid
from datetime import UTC, datetime
from typing import Final

FILES_WANTED: Final = 16_384
MALLOC_ARENAS: Final = 2
"""As many as the smallest machine has cores: the interpreter's lock lets hardly more than one thread allocate."""
_M_ARENA_MAX: Final = -8


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    def new(self) -> str:
        return str(uuid.uuid4())


def room_for_connections() -> int:
    """How many connections may be open before files run out. Each is an open file, and many systems limit a process
    to 1,024 until it raises the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted * 3 // 4


def share_malloc_arenas() -> None:
    """Lets all threads share a few arenas of the C library's allocator. By default each thread gets its own, up to
    eight for a core; what SQLite, Git and TLS release in one of them is not used by the others, and a busy role grows
    by some megabytes in each (ADR 0103). Before the first thread. Other C libraries have no such arenas."""
    import ctypes  # noqa: PLC0415 - start-up time

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, MALLOC_ARENAS)
