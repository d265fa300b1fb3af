"""What Homeport exports, and what a workload exports with the variables it is given, is what the shipped
configuration of the collector receives: the same ports, a pipeline for each signal, messages that opentelemetry-proto
reads."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from anyio.to_thread import run_sync
from google.protobuf.json_format import Parse
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from homeport.adapters.tracing.otlp import open_tracer
from homeport.core.logs.line import LogLine, Origin, StoredLine
from homeport.core.logs.settings import LogSettings
from homeport.core.node.telemetry_variables import otlp_variables
from homeport.core.tracing import Span
from homeport.logs.outputs.receivers import open_outputs

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).resolve().parents[3]
AT = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGES: Mapping[str, type[Message]] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
WORKLOAD = """
import os, urllib.request
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
request = ExportMetricsServiceRequest()
metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="frames")
metric.gauge.data_points.add(as_int=25, time_unix_nano=1)
assert os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
url = os.environ["HTTP_OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/metrics"
headers = {"content-type": "application/x-protobuf"}
urllib.request.urlopen(urllib.request.Request(url, request.SerializeToString(), headers), timeout=30).read()
"""


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "otel-collector.yaml").read_text("utf-8"))
    return found


@dataclass
class Receiver:
    url: str
    received: dict[str, list[Any]] = field(default_factory=dict)


@contextmanager
def receiving(configuration: Mapping[str, Any]) -> Iterator[Receiver]:
    """OTLP over HTTP as the configuration asks for it: a path for each pipeline that has the receiver, and 404 for
    every other signal."""
    pipelines = configuration["service"]["pipelines"].items()
    signals = {f"/v1/{name}": name for name, pipeline in pipelines if "otlp" in pipeline["receivers"]}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                content = gzip.decompress(content)
            signal = signals.get(self.path)
            if signal is not None:
                is_json = self.headers["content-type"] == "application/json"
                kind = MESSAGES[signal]
                message = Parse(content, kind()) if is_json else kind.FromString(content)
                running.received.setdefault(signal, []).append(message)
            self.send_response(404 if signal is None else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_traces_and_log_lines_of_homeport_are_received() -> None:
    line = LogLine(AT, "deployment/d-1/web", "error", "pull failed", {"why": "no space"})
    stored = StoredLine(1, Origin("home", "n1", "deployment/d-1/web"), line)
    with receiving(shipped()) as running:
        async with open_tracer(running.url, instance="n1") as tracer:
            tracer.export(Span("pull", "node", tracer.begin(None), None, AT, AT))
        async with open_outputs(LogSettings(otlp_url=f"{running.url}/v1/logs")) as (output,):
            await output.send([stored])
    (traces,), (logs,) = running.received["traces"], running.received["logs"]
    (group,) = traces.resource_spans
    names = {each.key: each.value.string_value for each in group.resource.attributes}
    assert names["service.name"] == "homeport-node" and group.scope_spans[0].spans[0].name == "pull"
    (record,) = logs.resource_logs[0].scope_logs[0].log_records
    assert (record.body.string_value, record.severity_number) == ("pull failed", 17)


async def test_a_workload_reaches_it_with_the_variables_that_it_is_given() -> None:
    with receiving(shipped()) as running:
        environment = {"PATH": os.environ["PATH"], **otlp_variables(running.url)}
        run = partial(subprocess.run, [sys.executable, "-c", WORKLOAD], env=environment, check=True, timeout=60)
        await run_sync(run)
    (metrics,) = running.received["metrics"]
    assert metrics.resource_metrics[0].scope_metrics[0].metrics[0].name == "frames"


def test_the_addresses_of_the_guide_are_those_of_its_receivers() -> None:
    """And containers can reach them: on loopback the collector would hear this machine alone."""
    receivers = shipped()["receivers"]["otlp"]["protocols"]
    given = otlp_variables("http://10.0.0.1:4318", "http://10.0.0.1:4317")
    guide = (ROOT / "docs" / "how-to" / "use-margo.md").read_text("utf-8")
    assert f"--workload-otlp {given['HTTP_OTEL_EXPORTER_OTLP_ENDPOINT']}" in guide
    for protocol in ("http", "grpc"):
        host, _, port = receivers[protocol]["endpoint"].rpartition(":")
        address = urlsplit(given[f"{protocol.upper()}_OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert (host, int(port)) == ("0.0.0.0", address.port)
