"""The shipped configuration of the OpenTelemetry collector, against what the collector's documentation says about its
shape: every component that a pipeline names is defined, every defined one is used, and nothing leaves the machine."""

from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[2] / "deploy" / "otel-collector.yaml"
KNOWN = {
    "receivers": {"otlp", "hostmetrics", "podman_stats", "docker_stats"},
    "processors": {"batch", "memory_limiter", "resourcedetection"},
    "exporters": {"nop", "debug", "otlp", "otlphttp"},
}
SCRAPERS = {"cpu", "disk", "filesystem", "load", "memory", "network", "paging", "process", "processes", "system"}


def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return found


def test_pipelines_name_what_is_defined_and_nothing_is_defined_for_nobody() -> None:
    given = configuration()
    assert given.keys() <= {"receivers", "processors", "exporters", "extensions", "connectors", "service"}
    pipelines = given["service"]["pipelines"]
    assert pipelines.keys() == {"metrics", "traces", "logs"}
    for section, known in KNOWN.items():
        used = {name for pipeline in pipelines.values() for name in pipeline[section]}
        assert used == set(given[section]) and used <= known
    assert all({"receivers", "exporters"} <= pipeline.keys() for pipeline in pipelines.values())


def test_workloads_reach_it_over_otlp_and_it_measures_the_host_and_containers() -> None:
    given = configuration()
    assert given["receivers"]["otlp"]["protocols"].keys() == {"http", "grpc"}
    assert given["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    assert given["receivers"]["hostmetrics"]["scrapers"].keys() <= SCRAPERS
    assert {"hostmetrics", "podman_stats"} <= set(given["service"]["pipelines"]["metrics"]["receivers"])


def test_no_exporter_is_preset() -> None:
    assert configuration()["exporters"] == {"nop": {}}
