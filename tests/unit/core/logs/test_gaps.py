"""Where lines are dropped, each source keeps a line that says how many."""

from dataclasses import replace
from datetime import UTC, datetime

from homeport.core.logs.gaps import SOURCES_MAX, collapse, count_of
from homeport.core.logs.intake import take
from homeport.core.logs.line import GAP, LogBatch, LogLine, Origin, deployment_source
from homeport.core.logs.query import LogFilter
from homeport.core.values.filters import LOG_WORDS, parse_filter

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def line(sequence: int, source: str = "job/1") -> LogLine:
    return LogLine(NOW, source, "info", f"line {sequence}", sequence=sequence)


def test_each_source_gets_one_line_with_its_count_in_the_place_of_its_last() -> None:
    found = collapse([("n", line(1)), ("n", line(2, "node")), ("n", line(3))], "why")
    assert [(each.source, each.sequence, each.fields[GAP]) for _, each in found] == [
        ("node", 2, "1"),
        ("job/1", 3, "2"),
    ]
    assert "2 lines were dropped here: why." in found[1][1].text


def test_gaps_add_up_and_many_sources_are_bounded() -> None:
    first = collapse([("n", line(1)), ("n", line(2))], "why")
    again = collapse([*first, ("n", line(3))], "why")
    assert [count_of(each) for _, each in again] == [3]
    many = collapse([("n", line(n, f"job/{n}")) for n in range(1, SOURCES_MAX + 51)], "why")
    assert len(many) == SOURCES_MAX
    assert sum(count_of(each) for _, each in many) == SOURCES_MAX + 50


def test_a_repeated_batch_is_recognised_and_one_after_a_hole_is_refused() -> None:
    batch = LogBatch("b", 2, [("n", line(3)), ("n", line(4))])
    assert take(batch, 2).last == 4
    assert [each.sequence for _, each in take(batch, 3).lines] == [4]
    assert take(batch, 4) == replace(take(batch, 4), lines=(), last=4)
    refused = take(batch, 1)
    assert (refused.lines, refused.last) == ((), 1)
    assert take(batch, 0).last == 0, "a buffer that is not known has to come from its beginning"


def test_filters_choose_by_origin_and_by_what_the_line_says() -> None:
    web = Origin("north", "n1", "deployment/d-1/web")
    assert LogFilter(deployment="d-1", component="web", site="north", node="n1").wants(web)
    assert not LogFilter(job="d-1").wants(web)
    assert not LogFilter(sites=frozenset({"south"})).wants(web)
    assert not LogFilter(sites=frozenset({"south"})).wants(Origin("", "", "central"))
    warned = LogLine(NOW, web.source, "warning", "Out of Memory", {"pod": "Alpha"})
    assert LogFilter(level="warning", text="memory").fits(warned)
    assert LogFilter(text="ALPHA", since=NOW).fits(warned)
    assert not LogFilter(level="error").fits(warned)
    assert not LogFilter(until=NOW).fits(warned)


def test_a_service_of_a_compose_file_is_found_by_its_own_name_and_by_its_components() -> None:
    db = Origin("north", "n1", deployment_source("d-1", "shop", "db"))
    assert (db.source, db.component, db.subject) == ("deployment/d-1/shop/db", "shop/db", "d-1")
    assert all(LogFilter(component=name).wants(db) for name in ("shop", "db", "shop/db"))
    assert not LogFilter(component="web").wants(db)
    named = {text: LogFilter(parts=parse_filter(text, LOG_WORDS, is_strict=False)) for text in NAMES_OF_DB}
    assert {text: each.wants(db) for text, each in named.items()} == NAMES_OF_DB
    assert deployment_source("d-1", "web", "web") == "deployment/d-1/web", "one name is enough"


NAMES_OF_DB = {"component:db": True, "component:shop": True, "component:we*": False, "-component:db": False}
