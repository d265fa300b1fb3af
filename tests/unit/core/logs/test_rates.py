"""A source that writes too much is limited, and the log says so."""

from datetime import UTC, datetime

from homeport.core.logs.gaps import count_of
from homeport.core.logs.line import GAP, LogLine
from homeport.core.logs.rates import RateRules, admit, begin

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RULES = RateRules(lines_per_second=10, bytes_per_second=1_000, burst_seconds=2)


def lines(count: int, text: str = "x") -> list[LogLine]:
    return [LogLine(NOW, "job/1", "info", text) for _ in range(count)]


def test_a_burst_passes_and_a_flood_is_cut_to_the_rate() -> None:
    rate, kept = admit(begin(0.0, RULES), lines(20), 0.0, RULES)
    assert len(kept) == 20
    rate, kept = admit(rate, lines(50), 0.5, RULES)
    assert (len(kept), rate.dropped) == (5, 45)
    rate, kept = admit(rate, lines(50), 1.5, RULES)
    told = kept[0]
    assert told.fields[GAP] == "85"
    assert "more than 10 lines" in told.text
    assert (len(kept), rate.dropped) == (11, 0)


def test_nothing_is_dropped_without_being_counted() -> None:
    rate, seen, told = begin(0.0, RULES), 0, 0
    for second in range(1, 30):
        rate, kept = admit(rate, lines(40), second, RULES)
        seen += sum(GAP not in line.fields for line in kept)
        told += sum(count_of(line) for line in kept if GAP in line.fields)
    assert seen + told + rate.dropped == 29 * 40


def test_bytes_count_too_and_a_limit_of_zero_is_none() -> None:
    _, kept = admit(begin(0.0, RULES), lines(5, "y" * 500), 0.0, RULES)
    assert len([line for line in kept if GAP not in line.fields]) == 4
    free = RateRules(lines_per_second=0)
    assert len(admit(begin(0.0, free), lines(5_000), 0.0, free)[1]) == 5_000
