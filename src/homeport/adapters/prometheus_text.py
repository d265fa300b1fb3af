"""Counters, gauges and histograms, and their text format for Prometheus.

Its client library brings an HTTP server, a WSGI server and a push client: 3 MB that a node would hold and never use
(ADR 0093). Families and samples have the same attributes as the library's, so that each can be registered with the
other: in `homeport up` the node's metrics are on central's page.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, NamedTuple, Protocol

from homeport.lazy_dataclass import dataclass

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_ESCAPES_OF_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


class MetricSample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float
    timestamp: None = None
    exemplar: None = None
    native_histogram: None = None


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one metric."""

    name: str
    documentation: str
    type: str
    samples: Sequence[MetricSample]
    unit: str = ""


class MetricsRegistry(Protocol):
    """Ours, or the one of prometheus_client."""

    def register(self, collector: Any) -> None: ...

    def unregister(self, collector: Any) -> None: ...

    def collect(self) -> Iterable[Any]: ...


class Collectors:
    """A registry: what is registered has a method `collect`."""

    def __init__(self) -> None:
        self._collectors: list[Any] = []

    def register(self, collector: Any) -> None:
        self._collectors.append(collector)

    def unregister(self, collector: Any) -> None:
        self._collectors.remove(collector)

    def collect(self) -> Iterator[Any]:
        for collector in self._collectors:
            yield from collector.collect()


@dataclass(slots=True)
class Value:
    """One time series."""

    value: float = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def set(self, value: float) -> None:
        self.value = value


@dataclass(slots=True)
class Distribution:
    """Observations by upper bound; each one is counted in the first bucket that holds it."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.bounds)

    def observe(self, value: float) -> None:
        self.sum += value
        self.counts[next(index for index, bound in enumerate(self.bounds) if value <= bound)] += 1


class Counter:
    """By one label, or by none. Its name on the page ends with `_total`."""

    def __init__(self, name: str, documentation: str, label: str = "") -> None:
        self.name, self.documentation, self.label = name, documentation, label
        self._series: dict[str, Value] = {} if label else {"": Value()}

    def labels(self, value: str) -> Value:
        return self._series.setdefault(value, Value())

    def inc(self, amount: float = 1.0) -> None:
        self._series[""].inc(amount)

    def collect(self) -> Iterator[Family]:
        values = {key: each.value for key, each in self._series.items()}
        yield counter(self.name, self.documentation, values, self.label)


class Histogram:
    def __init__(self, name: str, documentation: str, label: str, *, buckets: Sequence[float]) -> None:
        self.name, self.documentation, self.label = name, documentation, label
        self._bounds = (*buckets, math.inf)
        self._series: dict[str, Distribution] = {}

    def labels(self, value: str) -> Distribution:
        return self._series.setdefault(value, Distribution(self._bounds))

    def collect(self) -> Iterator[Family]:
        samples: list[MetricSample] = []
        for key, each in self._series.items():
            labels, total = _labels(self.label, key), 0
            for bound, count in zip(each.bounds, each.counts, strict=True):
                total += count
                samples.append(MetricSample(f"{self.name}_bucket", {**labels, "le": number_text(bound)}, total))
            samples += [
                MetricSample(f"{self.name}_count", labels, total),
                MetricSample(f"{self.name}_sum", labels, each.sum),
            ]
        yield Family(self.name, self.documentation, "histogram", samples)


def counter(name: str, documentation: str, values: float | Mapping[str, float], label: str = "") -> Family:
    """As `gauge`, for what only grows."""
    return Family(name, documentation, "counter", gauge(f"{name}_total", documentation, values, label).samples)


def gauge(name: str, documentation: str, values: float | Mapping[str, float], label: str = "") -> Family:
    """A gauge that is read when scraped, by one label or by none."""
    by_label = values if isinstance(values, Mapping) else {"": values}
    samples = [MetricSample(name, _labels(label, key), value) for key, value in by_label.items()]
    return Family(name, documentation, "gauge", samples)


def page(registry: MetricsRegistry) -> bytes:
    lines: list[str] = []
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        lines.append(f"# HELP {name} {family.documentation.translate(_ESCAPES_OF_HELP)}")
        lines.append(f"# TYPE {name} {family.type}")
        lines += [f"{each.name}{_shown(each.labels)} {number_text(each.value)}" for each in family.samples]
    return "".join(f"{line}\n" for line in lines).encode()


def number_text(value: float) -> str:
    """As Prometheus reads it: 1.0, +Inf, NaN."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _labels(label: str, value: str) -> dict[str, str]:
    return {label: value} if label else {}


def _shown(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""
