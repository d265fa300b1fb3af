"""Log lines are written as JSON by hand; it must be what `json` writes, whatever a program printed."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.core.logs.query import LogFilter
from homeport.logs.serving.routes import LogLineBody, lines_json

AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
JOB = Origin("home", "laptop", "job/backup")
SHOP = Origin('a "site"', "", "deployment/d1/web/db")
NASTY = 'a "quote" \\ back\\slash \x07\x1b[31m\n\r\t\x00 \u2028 ümlaut 🚢 </script>'


def line(number: int, origin: Origin, text: str, fields: Mapping[str, str] | None = None) -> StoredLine:
    return StoredLine(number, origin, LogLine(AT, origin.source, "info", text, fields or {}, number))


@pytest.mark.parametrize("text", ["", "plain", NASTY])
def test_a_line_is_json_with_every_field_of_its_body(text: str) -> None:
    (written,) = lines_json([line(7, SHOP, text, {NASTY: text, "status": "500"})])
    assert json.loads(written) == {
        "id": 7,
        "at": "2026-03-01T12:30:15.123+00:00",
        "level": "info",
        "site": 'a "site"',
        "node": "",
        "source": "deployment/d1/web/db",
        "deployment": "d1",
        "component": "web/db",
        "job": "",
        "text": text,
        "fields": {NASTY: text, "status": "500"},
    }
    LogLineBody.model_validate_json(written)


def test_lines_of_origins_in_turns_keep_their_own() -> None:
    written = lines_json([line(1, JOB, "a"), line(2, SHOP, "b"), line(3, JOB, "c")])
    found = [json.loads(each) for each in written]
    assert [(each["id"], each["job"], each["component"]) for each in found] == [
        (1, "backup", ""),
        (2, "", "web/db"),
        (3, "backup", ""),
    ]


def test_only_lines_of_wanted_origins_that_fit_are_shown() -> None:
    late = line(4, JOB, "late")
    late = late._replace(line=late.line._replace(at=AT + timedelta(hours=1)))
    lines = [line(1, JOB, "a"), line(2, SHOP, "b"), line(3, JOB, "c"), late]
    query = LogFilter(job="backup", until=AT + timedelta(minutes=1))
    assert [each.id for each in query.shown(lines)] == [1, 3]
