"""The real clock and real ids."""

import time
import uuid
from datetime import UTC, datetime


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    def new(self) -> str:
        return str(uuid.uuid4())
