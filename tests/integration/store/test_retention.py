"""Events, audit entries and jobs outlive a clock that leaps by years, over restarts too."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from homeport.adapters.store.open import open_store
from homeport.fleet.shared import retention
from homeport.fleet.shared.retention import retention_now

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class SetClock:
    def __init__(self) -> None:
        self.wall, self.ran = NOW, 0.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ran

    def run(self, hours: float) -> None:
        self.wall += timedelta(hours=hours)
        self.ran += hours * 3600


async def test_nothing_ages_by_a_leap_until_the_clock_has_kept_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    async with open_store(str(tmp_path / "role.db")) as store:
        assert await retention_now(store, clock) == NOW
        clock.run(2)
        assert await retention_now(store, clock) == NOW + timedelta(hours=2)
        clock.wall += timedelta(days=3_650)
        assert await retention_now(store, clock) == NOW + timedelta(hours=2)
    monkeypatch.setattr(retention, "PROCESS", "another")
    async with open_store(str(tmp_path / "role.db")) as store:
        for _ in range(23):
            clock.run(1)
            assert await retention_now(store, clock) < NOW + timedelta(days=2)
        clock.run(2)
        assert await retention_now(store, clock) == clock.wall
