"""A clock that moves when a test says so."""

from datetime import datetime, timedelta

from tests.support.builders import NOW


class ManualClock:
    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed
