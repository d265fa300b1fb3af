"""When a client calls its fleet manager: the configured hours and rate, and windows of downtime."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass

_WINDOW: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]|24):([0-5][0-9])")
DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """From a minute of the day to another, which may be on the next day."""

    begin: int
    end: int

    def holds(self, minute: int) -> bool:
        if self.begin <= self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


@dataclass(frozen=True, slots=True)
class PollSchedule:
    poll_seconds: float
    hours: tuple[DailyWindow, ...] = ()
    """When polling takes place; always when empty."""
    downtime: tuple[DailyWindow, ...] = ()
    """When the client does not call, and errors of communication mean nothing."""

    def is_downtime(self, now: datetime) -> bool:
        return any(each.holds(_minute(now)) for each in self.downtime)

    def may_call(self, now: datetime) -> bool:
        inside = not self.hours or any(each.holds(_minute(now)) for each in self.hours)
        return inside and not self.is_downtime(now)

    def seconds_until_open(self, now: datetime) -> float:
        """Until the client may call; 0 when it may now. A schedule that is never open is looked at once a day."""
        for minutes in range(DAY_MINUTES):
            moment = now if minutes == 0 else (now + timedelta(minutes=minutes)).replace(second=0, microsecond=0)
            if self.may_call(moment):
                return (moment - now).total_seconds()
        return DAY_MINUTES * 60.0


def daily_window(text: str, field: str = "hours") -> DailyWindow:
    """`22:00-06:00`. Raises InvalidInput."""
    match = _WINDOW.fullmatch(text.strip())
    begin, end = (_minutes(match[1], match[2]), _minutes(match[3], match[4])) if match else (0, 0)
    if match is None or begin == end or end > DAY_MINUTES:
        raise InvalidInput(problems=[Problem(field, f'"{text[:50]}" is not a time of day such as 22:00-06:00')])
    return DailyWindow(begin, end)


def schedule(poll_seconds: float, hours: Sequence[str], downtime: Sequence[str]) -> PollSchedule:
    if not 1.0 <= poll_seconds <= 86_400.0:
        raise InvalidInput(problems=[Problem("poll", "must be between a second and a day")])
    return PollSchedule(
        poll_seconds,
        tuple(daily_window(each, "hours") for each in hours),
        tuple(daily_window(each, "downtime") for each in downtime),
    )


def _minute(now: datetime) -> int:
    return now.hour * 60 + now.minute


def _minutes(hours: str, minutes: str) -> int:
    return int(hours) * 60 + int(minutes)
