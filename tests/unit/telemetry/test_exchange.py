"""What sites send to central, and what central shows of it."""

import json
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from homeport.core.telemetry.heartbeats import Interval
from homeport.core.telemetry.records import TelemetryRow
from homeport.errors import InvalidInput
from homeport.telemetry.shared.collector import TelemetryCollector
from homeport.telemetry.shared.exchange import TelemetryBatch, decode_batch, decode_pace, encode_batch
from homeport.telemetry.shared.latest import Latest
from homeport.vocabulary import Liveness, NodeId, SiteName

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOME, ONE = SiteName("home"), NodeId("one")
LATEST = Latest(HOME, ONE, NOW, {("cpu_percent", ()): 12.5, ("gpu_percent", (("gpu", "0"),)): 3.0})
BATCH = TelemetryBatch(
    [LATEST],
    [TelemetryRow(HOME, ONE, 60, NOW, b"\x00packed")],
    [Interval(ONE, NOW, Liveness.LIVE), Interval(NodeId("two"), NOW, Liveness.LOST, NOW)],
    NOW,
)


def test_a_batch_arrives_as_it_was_sent() -> None:
    assert decode_batch(HOME, encode_batch(BATCH)) == BATCH


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("rows", 0, "resolution"), 0),
        (("rows", 0, "content"), "no base64!"),
        (("rows", 0, "node"), "../x y"),
        (("rows", 0, "start"), "2026-03-01T12:00:00"),
        (("rows",), None),
        (("heartbeats", 0, "state"), "asleep"),
        (("latest", 0, "values"), [["cpu_percent", {}]]),
        (("observed_until",), "yesterday"),
    ],
)
def test_a_malformed_batch_is_refused(path: tuple[str | int, ...], value: object) -> None:
    content = json.loads(encode_batch(BATCH))
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InvalidInput, match="not"):
        decode_batch(HOME, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("body", "seconds"), [(b'{"next_seconds": 1}', 10), (b"", 300), (b'{"next_seconds": 1e9}', 300)]
)
def test_the_pace_that_central_asks_for_has_bounds(body: bytes, seconds: float) -> None:
    assert decode_pace(body) == seconds


def test_metrics_show_what_is_known_up_to_a_bound() -> None:
    registry = CollectorRegistry()
    newer = Latest(HOME, NodeId("two"), NOW, {("of_the_future", ()): 1.0, ("load_1m", ()): 0.5})
    registry.register(TelemetryCollector(lambda: [LATEST, newer], series_max=2))
    shown = generate_latest(registry).decode()
    assert 'homeport_node_cpu_percent{node="one",site="home"} 12.5' in shown
    assert 'homeport_node_gpu_percent{gpu="0",node="one",site="home"} 3.0' in shown
    assert "of_the_future" not in shown
    assert "homeport_telemetry_series_hidden 1.0" in shown
