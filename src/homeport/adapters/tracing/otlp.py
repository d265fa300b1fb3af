"""Sends spans to a collector: OTLP over HTTP, with the OpenTelemetry SDK.

The libraries are imported only when a collector is configured, because they would cost a node more than all its other
imports. Spans are queued and sent by one thread, so that no caller waits for a collector: an unreachable one costs
a log line and, when the bounded queue is full, the oldest spans, which are counted.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
from anyio.to_thread import run_sync

from homeport import __version__
from homeport.adapters.prometheus_text import counter, gauge
from homeport.core.tracing import Span, TraceContext
from homeport.core.values.backoff import BackoffPolicy
from homeport.errors import InvalidInput, PermanentError
from homeport.log import get_log

log = get_log("homeport.tracing")

QUEUE_MAX: Final = 4096
"""Some hundred deploys; a few megabytes."""
BATCH_MAX: Final = 512
GATHER_SECONDS: Final = 0.2
"""How long to batch spans before they are sent together."""
SEND_SECONDS: Final = 5.0
"""Timeout of one batch."""
RETRY: Final = BackoffPolicy(first_seconds=0.5, max_seconds=30.0)
CLOSE_SECONDS: Final = 1.5
"""How long a stopping role waits for the queue."""

Send = Callable[[Sequence[Span]], bool]
"""Whether the collector accepted them; blocks, and never raises."""


@asynccontextmanager
async def open_tracer(url: str, *, instance: str = "") -> AsyncIterator["OtlpTracer"]:
    """Sends to the collector at `url` while the body runs.

    Raises InvalidInput for an invalid URL, and PermanentError where the libraries are missing.
    """
    endpoint = traces_endpoint(url)
    tracer = OtlpTracer(await run_sync(_sender, endpoint, instance), endpoint)
    try:
        yield tracer
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(tracer.close)


def traces_endpoint(url: str) -> str:
    """A collector is given by its root, as in OTEL_EXPORTER_OTLP_ENDPOINT, or by the whole path for traces."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidInput(
            f'"{url}" is not the address of a collector.',
            hint="Give the URL of its OTLP/HTTP port, as in --otlp http://127.0.0.1:4318 .",
        )
    return url if parts.path.endswith("/v1/traces") else f"{url.rstrip('/')}/v1/traces"


class OtlpTracer:
    """`ports.Tracer`; also the metrics of its queue, for a registry."""

    def __init__(self, send: Send, endpoint: str) -> None:
        self._send = send
        self._endpoint = endpoint
        self._queue: deque[Span] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._is_silent = False
        self._sent = 0
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def begin(self, parent: TraceContext | None) -> TraceContext:
        if parent is None:
            return TraceContext(secrets.token_hex(16), secrets.token_hex(8))
        return TraceContext(parent.trace_id, secrets.token_hex(8), parent.sampled)

    def export(self, span: Span) -> None:
        if not span.context.sampled:
            return
        with self._changed:
            self._queue.append(span)
            self._shorten()
            self._changed.notify()

    def close(self) -> None:
        """One last short attempt to send the queue."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)

    def collect(self) -> Iterator[Any]:
        yield gauge("homeport_trace_queue", "Spans that wait for the collector.", len(self._queue))
        yield counter("homeport_trace_spans", "Spans that the collector has taken.", self._sent)
        yield counter("homeport_trace_spans_dropped", "Spans dropped because the queue was full.", self._dropped)

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing.is_set())
            self._closing.wait(GATHER_SECONDS)
            batch = self._take()
            if not batch:
                return
            if self._send(batch):
                self._sent += len(batch)
                failures = 0
                self._say(reached=True)
                continue
            self._put_back(batch)
            self._say(reached=False)
            failures += 1
            if self._closing.wait(RETRY.ceiling_seconds(failures)):
                return

    def _take(self) -> list[Span]:
        with self._changed:
            return [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]

    def _put_back(self, batch: Sequence[Span]) -> None:
        with self._changed:
            self._queue.extendleft(reversed(batch))
            self._shorten()

    def _shorten(self) -> None:
        while len(self._queue) > QUEUE_MAX:
            self._queue.popleft()
            self._dropped += 1

    def _say(self, *, reached: bool) -> None:
        """Logs once when the collector becomes unreachable, and once when it is back."""
        if reached and self._is_silent:
            log.info("trace export recovered", collector=self._endpoint)
        elif not reached and not self._is_silent:
            log.warning(
                "trace export failed, spans queued",
                collector=self._endpoint,
                kept=QUEUE_MAX,
            )
        self._is_silent = not reached


def _sender(endpoint: str, instance: str) -> Send:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - heavy
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415
    except ImportError as error:
        raise PermanentError(
            "Traces were asked for, but the OpenTelemetry libraries are not installed.",
            hint="Install them:  pip install 'homeport[otel]' , or leave --otlp and OTEL_EXPORTER_OTLP_ENDPOINT out.",
        ) from error
    # The SDK logs each failed attempt; we log only once that the collector is unreachable.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=SEND_SECONDS)
    convert = _converter(instance)

    def send(spans: Sequence[Span]) -> bool:
        try:
            return exporter.export([convert(span) for span in spans]) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - no failure of the library may end this thread
            return False

    return send


def _converter(instance: str) -> Callable[[Span], Any]:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - heavy
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags  # noqa: PLC0415

    scope = InstrumentationScope("homeport", __version__)
    resources: dict[str, Resource] = {}

    def resource(role: str) -> Resource:
        if role not in resources:
            named = {"service.instance.id": instance} if instance else {}
            about = {"service.name": f"homeport-{role}", "service.namespace": "homeport", **named}
            resources[role] = Resource({**about, "service.version": __version__})
        return resources[role]

    def context(of: TraceContext, *, is_remote: bool) -> SpanContext:
        return SpanContext(int(of.trace_id, 16), int(of.span_id, 16), is_remote, TraceFlags(TraceFlags.SAMPLED))

    def convert(span: Span) -> ReadableSpan:
        failure = span.failure
        failed = {} if failure is None else {"homeport.code": failure.code, "error.type": failure.code}
        return ReadableSpan(
            name=span.name,
            context=context(span.context, is_remote=False),
            parent=None if span.parent is None else context(span.parent, is_remote=True),
            resource=resource(span.role),
            attributes={**span.attributes, **failed},
            kind=SpanKind[span.kind.name],
            status=Status(StatusCode.UNSET) if failure is None else Status(StatusCode.ERROR, failure.message),
            start_time=_nanoseconds(span.began.timestamp()),
            end_time=max(_nanoseconds(span.began.timestamp()), _nanoseconds(span.ended.timestamp())),
            instrumentation_scope=scope,
        )

    return convert


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000) * 1000
