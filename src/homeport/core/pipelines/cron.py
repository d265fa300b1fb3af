"""Cron expressions of five fields: when the next time is, in a time zone.

A time that a change of clocks leaves out is taken at the first minute after it; one that it repeats is taken once.
As in every cron, a day matches if the day of the month or the day of the week matches, where both are restricted.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from homeport.lazy_dataclass import dataclass

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_LENGTH_MAX: Final = 200
_DAYS_MAX: Final = 366 * 8 + 3
"""The longest search: 29 February, across a year that is not a leap year."""


class CronError(Exception):
    """What is wrong with a schedule."""


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Whether both kinds of days are restricted."""

    def is_day(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        is_it = (in_month or in_week) if self.either_day else (in_month and in_week)
        return is_it and day.month in self.months


def parse_cron(text: str) -> Cron:
    """Raises CronError."""
    if len(text) > _LENGTH_MAX:
        raise CronError("is too long.")
    fields = _ALIASES.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise CronError(f'"{text}" must have five fields: minute, hour, day of month, month, day of week.')
    minutes = _field(fields[0], 0, 59, (), "minute")
    hours = _field(fields[1], 0, 23, (), "hour")
    days = _field(fields[2], 1, 31, (), "day of month")
    months = _field(fields[3], 1, 12, _MONTHS, "month")
    weekdays = frozenset(day % 7 for day in _field(fields[4], 0, 7, _DAYS, "day of week"))
    cron = Cron(minutes, hours, days, months, weekdays, "*" not in (fields[2][0], fields[4][0]))
    if next_time(cron, UTC, datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise CronError(f'"{text}" never occurs: no such day exists.')
    return cron


def parse_zone(name: str) -> ZoneInfo:
    """Raises CronError."""
    wrong = CronError(f'"{name[:100]}" is not a time zone: write it as in Europe/Berlin.')
    if not name or len(name) > 100 or not name.isascii():
        raise wrong
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise wrong from None


def next_time(cron: Cron, zone: tzinfo, after: datetime) -> datetime | None:
    """The first time after a moment, in UTC; None where none comes within eight years."""
    assert after.tzinfo is not None
    local = after.astimezone(zone)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for _ in range(_DAYS_MAX):
        if cron.is_day(day):
            for hour in sorted(cron.hours):
                for minute in sorted(cron.minutes):
                    found = _moment(day.replace(hour=hour, minute=minute), zone)
                    if found > after:
                        return found
        day += timedelta(days=1)
    return None


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    """A time on the wall as a moment. In a gap of the clocks it is moved behind the gap."""
    moment = wall.replace(tzinfo=zone).astimezone(UTC)
    back = moment.astimezone(zone).replace(tzinfo=None)
    if back == wall:
        return moment
    while back > wall and back.minute:
        moment -= timedelta(minutes=1)
        back = moment.astimezone(zone).replace(tzinfo=None)
    return moment


def _field(text: str, low: int, high: int, names: tuple[str, ...], word: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, 1, high, (), word) if slash else 1
        if span == "*":
            first, last = low, high
        else:
            begin, dash, end = span.partition("-")
            first = _number(begin, low, high, names, word)
            last = _number(end, low, high, names, word) if dash else (high if slash else first)
        if last < first:
            raise CronError(f'"{part}" is not a {word}: the range ends before it begins.')
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, low: int, high: int, names: tuple[str, ...], word: str) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + (1 if low == 1 else 0)
    if text.isascii() and text.isdigit() and len(text) <= 2 and low <= int(text) <= high:
        return int(text)
    raise CronError(f'"{text[:20]}" is not a {word}: give a number from {low} to {high}.')
