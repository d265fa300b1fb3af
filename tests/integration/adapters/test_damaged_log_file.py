"""A log file that a power cut has damaged costs its lines, and nothing else: the role starts, and logs on."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from homeport.adapters.logs.sqlite import LogFile
from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import LogBatch, LogLine, Origin
from homeport.core.logs.query import LogFilter
from homeport.errors import TransientError

WEB = Origin("home", "n1", "deployment/d/web")
PAGE = 4096


def lines(first: int, last: int) -> list[tuple[Origin, LogLine]]:
    return [
        (WEB, LogLine(datetime.now(UTC), WEB.source, "info", f"line {number} {'x' * 300}", {"n": str(number)}))
        for number in range(first, last + 1)
    ]


def filled(path: Path) -> LogFile:
    file = LogFile(path)
    file.append(lines(1, 3_000), {"container": "place"})
    assert file.bounds() == (1, 3_000)
    return file


def damage(path: Path, pages: range) -> None:
    with path.open("r+b") as raw:
        for number in pages:
            raw.seek(number * PAGE)
            raw.write(os.urandom(PAGE))


def use(file: LogFile) -> list[str]:
    """What roles do all the time, each as often as they would."""
    for _ in range(5):
        try:
            file.append(lines(1, 1), {"container": "other"})
            file.take([LogArrival("node/n1", "home", [LogBatch("b", 0, [("n1", lines(1, 1)[0][1])])])])
            file.cursor("central")
            file.trim(days=7, bytes_max=10**9)
            found = file.find(LogFilter(), is_newest_first=False, after=None, limit=10_000).lines
            return [each.line.text for each in file.after(0, 10_000)] if found else []
        except TransientError:
            continue
    raise AssertionError("it is not used again")


@pytest.mark.parametrize("pages", [range(1), range(1, 5), range(3, 300, 7), range(200, 201)])
def test_a_damaged_file_is_put_aside_when_a_role_starts(tmp_path: Path, pages: range) -> None:
    path = tmp_path / "logs.sqlite3"
    before = filled(path)
    buffer = before.buffer
    before.close()
    damage(path, pages)
    file = LogFile(path)
    assert use(file)
    if file.bounds()[1] < 3_000:
        assert file.buffer != buffer, "its ids begin again, and must not be taken for those before"
        assert path.with_name("logs.sqlite3.damaged").is_file()
    file.close()
    again = LogFile(path)
    assert again.buffer == file.buffer
    assert use(again)
    again.close()


@pytest.mark.parametrize("change", ["fields = '{'", "origin = 77", "level = 99", "at_ms = 1e300", "text = x'ff00fe'"])
def test_a_row_that_nobody_wrote_does_not_stop_those_who_read_it(tmp_path: Path, change: str) -> None:
    path = tmp_path / "logs.sqlite3"
    file = filled(path)
    file.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE line SET {change} WHERE id = 1500")
    file = LogFile(path)
    assert use(file)
    file.close()


def test_one_that_is_damaged_while_a_role_runs_is_replaced_and_ids_go_on(tmp_path: Path) -> None:
    path = tmp_path / "logs.sqlite3"
    file = filled(path)
    buffer = file.buffer
    file.close()
    file = LogFile(path)
    damage(path, range(2, 250))
    assert use(file)
    oldest, newest = file.bounds()
    assert (oldest, newest > 3_000, file.buffer) == (3_001, True, buffer)
    assert path.with_name("logs.sqlite3.damaged").is_file()
    file.close()
    with pytest.raises(TransientError):
        file.bounds()
    assert not path.with_name("logs.sqlite3-wal").exists(), "a closed file stays closed"
