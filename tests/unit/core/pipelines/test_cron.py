"""When a schedule is due, also where clocks change."""

from datetime import UTC, datetime

import pytest

from homeport.core.pipelines.cron import CronError, next_time, parse_cron, parse_zone


@pytest.mark.parametrize(
    ("text", "zone", "after", "then"),
    [
        ("*/15 * * * *", "UTC", "2026-01-01T00:00", "2026-01-01T00:15"),
        ("0 3 * * *", "Europe/Berlin", "2026-01-01T02:00", "2026-01-02T02:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-07-01T00:59", "2026-07-01T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00"),  # the clocks go from 2 to 3
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:30"),  # 2:30 comes twice
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 12 13 * fri", "UTC", "2026-02-01T00:00", "2026-02-06T12:00"),  # either day
        ("0 9 * * mon-fri", "UTC", "2026-01-02T09:00", "2026-01-05T09:00"),
        ("0 0 1 jan,JUL *", "UTC", "2026-01-01T00:00", "2026-07-01T00:00"),
        ("0 0 * * 7", "UTC", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("@monthly", "UTC", "2026-01-31T00:00", "2026-02-01T00:00"),
        ("5/20 1 * * *", "UTC", "2026-01-01T01:06", "2026-01-01T01:25"),
    ],
)
def test_the_next_time_is(text: str, zone: str, after: str, then: str) -> None:
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = next_time(parse_cron(text), parse_zone(zone), moment)
    assert found == datetime.fromisoformat(then).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * 0 * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "* * * * mon-fry",
        "0 0 30 2 *",
        "-1 * * * *",
        *("1,,2 * * * *", "* * * 13 *", "٣ * * * *", "0 " * 200, "@often"),
    ],
)
def test_what_is_no_schedule_says_why(text: str) -> None:
    with pytest.raises(CronError):
        parse_cron(text)


@pytest.mark.parametrize("name", ["", "Nowhere/Town", "../../etc/passwd", "/etc/localtime", "x" * 200, "é"])
def test_what_is_no_time_zone_says_so(name: str) -> None:
    with pytest.raises(CronError):
        parse_zone(name)
