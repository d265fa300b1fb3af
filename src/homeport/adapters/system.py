"""The real clock, real ids, and the limits of the process."""

import resource
import time
import uuid
from datetime import UTC, datetime
from typing import Final

FILES_WANTED: Final = 16_384


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
