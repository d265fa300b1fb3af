"""How long something is kept has an end that a calendar knows: 999,999 days, meant as for ever, ended the role."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from homeport.central.settings import CentralSettings
from homeport.core.logs.settings import LogSettings
from homeport.core.values.numbers import DAYS_MAX, SECONDS_MAX
from homeport.errors import InvalidInput
from homeport.site.settings import SiteSettings
from homeport.vocabulary import SiteName

KEPT: dict[str, Callable[[Any], object]] = {
    "central's audit trail": lambda days: CentralSettings(data=Path("x"), audit_days=days),
    "central's events": lambda days: CentralSettings(data=Path("x"), events_days=days),
    "a site's audit trail": lambda days: SiteSettings(
        data=Path("x"), name=SiteName("home"), git_url="x", audit_days=days
    ),
    "logs": lambda days: LogSettings(days=days),
}


@pytest.mark.parametrize("settings", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("days", [-1, 0, DAYS_MAX + 1, 999_999, 10**30, math.inf, math.nan])
def test_what_no_calendar_knows_is_refused(settings: Callable[[Any], object], days: float) -> None:
    with pytest.raises(InvalidInput, match=str(DAYS_MAX)):
        settings(days)


@pytest.mark.parametrize("settings", KEPT.values(), ids=KEPT)
def test_a_century_is_kept(settings: Callable[[Any], object]) -> None:
    assert settings(DAYS_MAX)


@pytest.mark.parametrize("now", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)])
def test_the_longest_times_are_dates_also_of_a_machine_without_a_clock(now: datetime) -> None:
    for longest in (timedelta(days=DAYS_MAX), timedelta(seconds=SECONDS_MAX)):
        assert now - longest < now < now + longest
