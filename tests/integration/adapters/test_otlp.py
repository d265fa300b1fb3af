"""The queue of spans in front of a collector that is there, slow, refusing or gone."""

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from homeport.adapters.tracing import otlp
from homeport.adapters.tracing.otlp import OtlpTracer, open_tracer, traces_endpoint
from homeport.core.model.instance import Failure
from homeport.core.tracing import Span, SpanKind, TraceContext
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import InvalidInput, PermanentError
from tests.support.collector import collector
from tests.support.waiting import eventually

AT = datetime(2026, 1, 1, tzinfo=UTC)
PARENT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")

pytestmark = pytest.mark.anyio


def span(name: str, context: TraceContext, parent: TraceContext | None = None) -> Span:
    return Span(name, "node", context, parent, AT, AT + timedelta(seconds=2))


def level(tracer: OtlpTracer, name: str) -> float:
    found = (sample for metric in tracer.collect() for sample in metric.samples if sample.name == name)
    return float(next(found).value)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds a sender back until it is set; set in any case in the end, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_span_arrives_with_its_parent_its_times_and_its_failure() -> None:
    with collector() as running:
        async with open_tracer(running.url, instance="n1") as tracer:
            context = tracer.begin(PARENT)
            failed = Failure("TIMEOUT", "it took too long")
            tracer.export(
                Span(
                    "pull", "node", context, PARENT, AT, AT + timedelta(seconds=2), {"a": 1}, failed, SpanKind.CLIENT
                )
            )
        (received,) = running.spans
    assert (received.trace_id, received.parent_id) == (PARENT.trace_id, PARENT.span_id)
    assert received.span_id == context.span_id != PARENT.span_id
    assert (received.nanoseconds, received.error) == (2_000_000_000, "it took too long")
    assert received.attributes == {"a": 1, "homeport.code": "TIMEOUT", "error.type": "TIMEOUT"}


async def test_a_trace_that_nobody_wants_is_not_sent() -> None:
    with collector() as running:
        async with open_tracer(running.url) as tracer:
            tracer.export(span("quiet", tracer.begin(TraceContext(PARENT.trace_id, PARENT.span_id, sampled=False))))
            tracer.export(span("loud", tracer.begin(None)))
        assert [each.name for each in running.spans] == ["loud"]


async def test_a_collector_that_refuses_gets_the_same_spans_again() -> None:
    with collector() as running:
        running.answers = 400
        async with open_tracer(running.url) as tracer:
            tracer.export(span("patient", tracer.begin(None)))
            await eventually(lambda: running.requests >= 2)
            running.answers = 200
            await eventually(lambda: running.spans)
            await eventually(lambda: level(tracer, "homeport_trace_spans_total") == 1)
            assert level(tracer, "homeport_trace_queue") == 0


async def test_a_full_queue_drops_the_oldest_and_counts_them(
    monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    monkeypatch.setattr(otlp, "QUEUE_MAX", 10)
    sent: list[str] = []

    def send(spans: Sequence[Span]) -> bool:
        gate.wait(10)
        sent.extend(each.name for each in spans)
        return True

    tracer = OtlpTracer(send, "nowhere")
    for number in range(10):
        tracer.export(span(f"{number}", tracer.begin(None)))
    await eventually(lambda: level(tracer, "homeport_trace_queue") == 0)
    for number in range(10, 35):
        tracer.export(span(f"{number}", tracer.begin(None)))
    assert level(tracer, "homeport_trace_queue") == 10
    assert level(tracer, "homeport_trace_spans_dropped_total") == 15
    gate.set()
    await eventually(lambda: level(tracer, "homeport_trace_spans_total") == 20)
    tracer.close()
    assert sent == [str(number) for number in (*range(10), *range(25, 35))]


async def test_a_dead_collector_is_one_line_and_stopping_does_not_wait_for_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "RETRY", BackoffPolicy(first_seconds=0.01, max_seconds=30.0))
    monkeypatch.setattr(otlp, "GATHER_SECONDS", 0.01)
    attempts: list[int] = []

    def send(spans: Sequence[Span]) -> bool:
        attempts.append(len(spans))
        return False

    with caplog.at_level(logging.INFO, "homeport.tracing"):
        tracer = OtlpTracer(send, "nowhere")
        for number in range(50):
            tracer.export(span(f"{number}", tracer.begin(None)))
        await eventually(lambda: len(attempts) >= 4)
        tracer.close()
    assert [record.message for record in caplog.records] == ["trace export failed, spans queued"]
    assert not tracer._thread.is_alive()


@pytest.mark.parametrize("url", ["collector:4318", "ftp://x", "", "http://"])
async def test_an_address_that_is_none_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        traces_endpoint(url)
    assert "--otlp http://127.0.0.1:4318" in (caught.value.hint or "")


async def test_the_path_for_traces_is_added_once() -> None:
    assert traces_endpoint("http://c:4318") == "http://c:4318/v1/traces"
    assert traces_endpoint("http://c:4318/") == "http://c:4318/v1/traces"
    assert traces_endpoint("https://c/otlp/v1/traces") == "https://c/otlp/v1/traces"


async def test_without_the_libraries_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry.sdk.trace.export", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(PermanentError) as caught:
        async with open_tracer("http://127.0.0.1:4318"):
            pass
    assert "pip install 'homeport[otel]'" in (caught.value.hint or "")
