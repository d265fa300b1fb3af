"""Our text for Prometheus is read by its own parser, and says what its own library would say."""

import math
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as TheirCounter
from prometheus_client import Gauge as TheirGauge
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families

from homeport.adapters.prometheus_text import Collectors, Counter, Family, Histogram, gauge, number_text, page

BUCKETS = (0.05, 1, 30)
ODD = 'a "quoted"\\ line\nbreak'


class Ours:
    def __init__(self) -> None:
        self.plain = Counter("restores", "Started again.")
        self.labelled = Counter("orders", f"Orders: {ODD}", "verdict")
        self.seconds = Histogram("seconds", "How long.", "kind", buckets=BUCKETS)

    def collect(self) -> Iterator[Family]:
        for each in (self.plain, self.labelled, self.seconds):
            yield from each.collect()
        yield gauge("waiting", "What waits.", 3)
        yield gauge("states", "By state.", {"a": 1.5, "b": 0}, "state")


def ours() -> Ours:
    found = Ours()
    found.plain.inc(2)
    found.labelled.labels(ODD).inc()
    found.labelled.labels("busy").inc(0)
    for value in (0.01, 0.05, 7, 31):
        found.seconds.labels("apply").observe(value)
    return found


def theirs() -> str:
    registry = CollectorRegistry()
    TheirCounter("restores", "Started again.", registry=registry).inc(2)
    orders = TheirCounter("orders", f"Orders: {ODD}", ["verdict"], registry=registry)
    orders.labels(ODD).inc()
    orders.labels("busy").inc(0)
    seconds = TheirHistogram("seconds", "How long.", ["kind"], buckets=BUCKETS, registry=registry)
    for value in (0.01, 0.05, 7, 31):
        seconds.labels("apply").observe(value)
    TheirGauge("waiting", "What waits.", registry=registry).set(3)
    states = TheirGauge("states", "By state.", ["state"], registry=registry)
    states.labels("a").set(1.5)
    states.labels("b").set(0)
    return generate_latest(registry).decode()


def read(text: str) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
    """Without `_created`, which Prometheus itself does not use."""
    return {
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_the_page_says_what_the_library_would_say() -> None:
    registry = Collectors()
    registry.register(ours())
    text = page(registry).decode()
    assert read(text) == read(theirs())
    assert {(each.name, each.type, each.documentation) for each in text_string_to_metric_families(text)} == {
        (each.name, each.type, each.documentation)
        for each in text_string_to_metric_families(theirs())
        if not each.name.endswith("_created")
    }


def test_ours_are_collected_by_the_librarys_registry_too() -> None:
    """In `homeport up` central's page has the node's metrics."""
    registry = CollectorRegistry()
    registry.register(ours())  # type: ignore[arg-type]  # the same attributes, another class
    assert read(generate_latest(registry).decode()) == read(theirs())


def test_what_was_unregistered_is_gone() -> None:
    registry, collector = Collectors(), ours()
    registry.register(collector)
    registry.unregister(collector)
    assert page(registry) == b""


@pytest.mark.parametrize(("value", "text"), [(1, "1.0"), (0.05, "0.05"), (math.inf, "+Inf"), (-math.inf, "-Inf")])
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number_text(value) == text
    assert number_text(math.nan) == "NaN"
