"""A collector of traces: takes OTLP over HTTP as any does, and remembers the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class Received:
    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    error: str
    nanoseconds: int


@dataclass
class Collector:
    url: str
    spans: list[Received] = field(default_factory=list)
    requests: int = 0
    answers: int = 200
    """What it answers; anything but 200 takes nothing."""

    def named(self, name: str, **attributes: Any) -> list[Received]:
        wanted = {f"homeport.{key.replace('__', '.')}": value for key, value in attributes.items()}
        return [span for span in list(self.spans) if span.name == name and wanted.items() <= span.attributes.items()]

    def path(self, span: Received) -> list[str]:
        """From the first span of the trace down to this one, as service:name."""
        by_id = {each.span_id: each for each in list(self.spans) if each.trace_id == span.trace_id}
        names = [f"{span.service}:{span.name}"]
        while span.parent_id:
            if span.parent_id not in by_id:
                return ["?", *names]
            span = by_id[span.parent_id]
            names.insert(0, f"{span.service}:{span.name}")
        return names


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    running = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    handler.collector = running  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        self.collector.requests += 1
        if self.collector.answers == 200:
            assert self.path == "/v1/traces", self.path
            self.collector.spans.extend(_read(ExportTraceServiceRequest.FromString(content)))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(self.collector.answers)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


def _read(request: Any) -> Iterator[Received]:
    for group in request.resource_spans:
        service = _attributes(group.resource.attributes)["service.name"]
        for span in (span for scope in group.scope_spans for span in scope.spans):
            yield Received(
                service=service.removeprefix("homeport-"),
                name=span.name,
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                attributes=_attributes(span.attributes),
                error=span.status.message if span.status.code == 2 else "",
                nanoseconds=span.end_time_unix_nano - span.start_time_unix_nano,
            )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
