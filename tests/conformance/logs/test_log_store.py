"""What every log store promises: on SQLite, and on a real PostgreSQL that two replicas share."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from homeport.adapters.bus.inprocess import InProcessBus
from homeport.adapters.logs.postgresql import PostgresLogs
from homeport.adapters.logs.rows import ORIGINS_KEPT_MIN
from homeport.adapters.logs.sqlite import LogFile, SqliteLogs
from homeport.core.logs.gaps import count_of
from homeport.core.logs.intake import LogArrival
from homeport.core.logs.line import GAP, LogBatch, LogLine, Origin, StoredLine
from homeport.core.logs.query import Among, LogFilter
from homeport.core.values.filters import LOG_WORDS, parse_filter
from homeport.ports import LogStore
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio

NOW = datetime.now(UTC).replace(microsecond=0)
WEB = "deployment/d-1/web"
EVERYTHING = LogFilter()


def line(number: int, source: str = WEB, *, level: str = "info", text: str = "") -> LogLine:
    fields = {"request": str(number)} if number % 2 else {}
    return LogLine(NOW + timedelta(milliseconds=number), source, level, text or f"line {number}", fields, number)


def arrival(first: int, last: int, *, previous: int | None = None, buffer: str = "b", text: str = "") -> LogArrival:
    lines = [("n1", line(number, text=text)) for number in range(first, last + 1)]
    return LogArrival("site/north", "north", [LogBatch(buffer, first - 1 if previous is None else previous, lines)])


@pytest.fixture(params=["sqlite", "postgresql"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[LogStore, LogStore]]:
    """A store, and the same as another process sees it."""
    if request.param == "sqlite":
        alone = SqliteLogs(LogFile(tmp_path / "logs.sqlite3"))
        yield alone, alone
        await alone.close()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    name, bus = await server.create_database(), InProcessBus()
    stores = PostgresLogs(server.url(name), bus), PostgresLogs(server.url(name), bus)
    yield stores
    for store in stores:
        await store.close()
    await server.drop_database(name)


@pytest.fixture
def store(pair: tuple[LogStore, LogStore]) -> LogStore:
    return pair[0]


async def everything(store: LogStore, query: LogFilter = EVERYTHING, *, is_newest_first: bool = False) -> list[str]:
    return [each.line.text for each in await pages(store, query, is_newest_first=is_newest_first)]


async def pages(store: LogStore, query: LogFilter, *, is_newest_first: bool = False) -> list[StoredLine]:
    found: list[StoredLine] = []
    after = None
    while True:
        page = await store.find(query, is_newest_first=is_newest_first, after=after, limit=7)
        found += page.lines
        after = page.next
        if after is None:
            return found


async def test_lines_come_back_as_they_were_in_both_orders(pair: tuple[LogStore, LogStore]) -> None:
    store, other = pair
    assert await store.take([arrival(1, 20)]) == [20]
    found = await pages(other, EVERYTHING)
    assert [each.line.text for each in found] == [f"line {number}" for number in range(1, 21)]
    assert found[0].origin == Origin("north", "n1", WEB)
    assert (found[0].line.at, found[0].line.fields) == (NOW + timedelta(milliseconds=1), {"request": "1"})
    assert await everything(other, is_newest_first=True) == [f"line {number}" for number in range(20, 0, -1)]


def test_lines_of_several_sources_in_one_write_keep_theirs(tmp_path: Path) -> None:
    sources = [WEB, "node", "job/1", WEB, "node", WEB] * 20
    file = LogFile(tmp_path / "logs.sqlite3")
    file.append((Origin("", "", source), line(number, source)) for number, source in enumerate(sources))
    found = [each.origin.source for each in file.after(0, 1000)]
    file.close()
    assert found == sources


async def test_what_is_sent_again_is_stored_once_and_a_hole_is_asked_for(pair: tuple[LogStore, LogStore]) -> None:
    store, other = pair
    await store.take([arrival(1, 5)])
    assert await other.take([arrival(3, 8, previous=2)]) == [8]
    assert await store.take([arrival(10, 12)]) == [8], "9 is missing"
    assert await store.take([arrival(9, 12)]) == [12]
    assert await everything(store) == [f"line {number}" for number in range(1, 13)]
    assert await store.take([arrival(1, 2, buffer="new")]) == [2], "a new buffer counts again"


async def test_queries_choose_by_origin_level_time_and_text(store: LogStore) -> None:
    await store.append([(Origin("", "", "central"), line(1, "central", level="error", text="central broke"))])
    await store.take([arrival(1, 30), LogArrival("site/south", "south", [LogBatch("s", 0, [("", line(1, "site"))])])])
    assert await everything(store, LogFilter(kind="central")) == ["central broke"]
    assert await everything(store, LogFilter(site="south")) == ["line 1"]
    assert await everything(store, LogFilter(level="warning")) == ["central broke"]
    assert await everything(store, LogFilter(deployment="d-1", component="web", text="LINE 30")) == ["line 30"]
    assert await everything(store, LogFilter(since=NOW + timedelta(milliseconds=29))) == ["line 29", "line 30"]
    assert await everything(store, LogFilter(job="d-1")) == []
    assert len(await everything(store, LogFilter(sites=frozenset({"north"})))) == 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("site:nor* -component:web", ["oven broke (EXITED)"]),
        ("BROKE -central", ["oven broke (EXITED)"]),
        ("node:n1 line", ["line 1", "line 2"]),
        ('"line 2"', ["line 2"]),
        ("job:7", ["oven broke (EXITED)"]),
        ("code:EXITED", ["oven broke (EXITED)"]),
        ("code:2", ["line 2"]),
        ("http://x", []),
        ("-site:north", ["central broke"]),
    ],
)
async def test_the_filter_language_chooses_lines(store: LogStore, text: str, expected: list[str]) -> None:
    await store.append([(Origin("", "", "central"), line(1, "central", level="error", text="central broke"))])
    await store.take([arrival(1, 2)])
    job = [("n2", line(1, "job/7", text="oven broke (EXITED)"))]
    await store.take([LogArrival("site/north", "north", [LogBatch("other", 0, job)])])
    asked = LogFilter(parts=parse_filter(text, LOG_WORDS, is_strict=False))
    assert await everything(store, asked) == expected


async def test_lines_are_among_deployments_and_places(store: LogStore) -> None:
    await store.append([(Origin("", "", "central"), line(1, "central", text="central"))])
    await store.take([arrival(1, 1)])
    ours = Among(frozenset({"d-1"}))
    assert await everything(store, LogFilter(among=(ours,))) == ["line 1"]
    assert await everything(store, LogFilter(among=(replace(ours, is_negated=True),))) == ["central"]
    assert await everything(store, LogFilter(among=(Among(frozenset(), frozenset({("north", "")})),))) == ["line 1"]
    assert await everything(store, LogFilter(among=(Among(frozenset(), frozenset({("north", "n2")})),))) == []


async def test_many_origins_and_a_rare_text_are_found_page_by_page(store: LogStore) -> None:
    lines = [("n1", line(number, f"job/{number % 40}")) for number in range(1, 25_001)]
    await store.take([LogArrival("site/north", "north", [LogBatch("b", 0, lines)])])
    assert await everything(store, LogFilter(text="line 25000")) == ["line 25000"]
    first = await store.find(LogFilter(text="line 24999"), is_newest_first=False, after=None, limit=10)
    assert first.lines == []
    assert first.next is not None, "a page looks at a bounded number of lines"
    assert await everything(store, LogFilter(job="39", text="line 79"), is_newest_first=True) == [
        f"line {number}"
        for number in range(25_000, 0, -1)
        if number % 40 == 39 and f"line {number}".startswith("line 79")
    ]


async def test_a_reader_is_woken_by_lines_that_another_process_stores(pair: tuple[LogStore, LogStore]) -> None:
    store, other = pair
    await other.wait(-1)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.wait, 0)
            await anyio.lowlevel.checkpoint()
            await store.take([arrival(1, 3)])
    assert [each.line.text for each in await other.after(1, 10)] == ["line 2", "line 3"]
    assert await other.bounds() == (1, 3)


async def test_retention_removes_the_oldest_and_ids_go_on(store: LogStore) -> None:
    for first in range(1, 20_001, 5_000):
        await store.take([arrival(first, first + 4_999, text="x" * 200)])
    await store.trim(days=1, bytes_max=3_000_000)
    oldest, newest = await store.bounds()
    assert newest == 20_000
    assert 2_000 < oldest < 20_000
    await store.trim(days=-1, bytes_max=10**9)
    assert await everything(store) == []
    assert await store.bounds() == (20_001, 20_000)
    await store.take([arrival(20_001, 20_001)])
    assert await store.bounds() == (20_001, 20_001)


async def test_what_a_consumer_has_not_had_becomes_a_gap_with_a_count(store: LogStore) -> None:
    assert await store.cursor("central") == 0
    await store.take([arrival(1, 100)])
    await store.advance("central", 40)
    await store.trim(days=-1, bytes_max=10**9)
    (gap,) = await store.after(0, 10)
    assert gap.id == 100
    assert gap.line.fields == {GAP: "60"}
    assert gap.origin == Origin("north", "n1", WEB)
    assert "60 lines were dropped here" in gap.line.text
    await store.take([arrival(101, 110)])
    await store.trim(days=-1, bytes_max=10**9)
    assert [count_of(each.line) for each in await store.after(0, 10)] == [70]
    await store.advance("central", 110)
    await store.trim(days=-1, bytes_max=10**9)
    assert list(await store.after(0, 10)) == []


async def test_sources_whose_lines_are_gone_are_forgotten(pair: tuple[LogStore, LogStore]) -> None:
    """Each job is a source of its own, and a node may name any: kept for good, they would fill the memory."""
    store, other = pair
    jobs = [("n1", line(number, f"job/{number}")) for number in range(1, ORIGINS_KEPT_MIN + 101)]
    await store.take([LogArrival("site/north", "north", [LogBatch("b", 0, jobs)])])
    assert len(await other.after(0, 10)) == 10
    await anyio.sleep(0.01)
    await store.trim(days=0.0, bytes_max=10**9)
    assert await everything(store) == []
    kept: Any = store.file if isinstance(store, SqliteLogs) else store
    assert not kept._origins
    for each in (store, other):
        await each.append([(Origin("north", "n1", "job/7"), line(7, "job/7", text="again"))])
    assert [each.origin.source for each in await pages(store, EVERYTHING)] == ["job/7", "job/7"]
    assert await everything(other) == ["again", "again"]
