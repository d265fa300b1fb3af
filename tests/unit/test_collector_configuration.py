"""The shipped configurations of the OpenTelemetry collector, against what the collector's documentation says about
their shape: every component that a pipeline names is defined, every defined one is used, and nothing leaves the
machine."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy"
ENGINE, KUBERNETES = "otel-collector.yaml", "otel-collector-kubernetes.yaml"
KNOWN = {
    "receivers": {
        *("otlp", "hostmetrics", "podman_stats", "docker_stats"),
        *("k8s_cluster", "k8sobjects", "kubeletstats"),
    },
    "processors": {"batch", "memory_limiter", "resourcedetection", "k8sattributes"},
    "exporters": {"nop", "debug", "otlp", "otlphttp"},
}
SCRAPERS = {"cpu", "disk", "filesystem", "load", "memory", "network", "paging"}
ATTRIBUTES = {
    *("k8s.namespace.name", "k8s.pod.name", "k8s.pod.uid", "k8s.pod.start_time"),
    *("k8s.deployment.name", "k8s.node.name"),
}


@pytest.fixture(params=[ENGINE, KUBERNETES])
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    return configuration(request.param)


def configuration(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


def test_pipelines_name_what_is_defined_and_nothing_is_defined_for_nobody(given: dict[str, Any]) -> None:
    assert given.keys() <= {"receivers", "processors", "exporters", "extensions", "connectors", "service"}
    pipelines = given["service"]["pipelines"]
    assert pipelines.keys() == {"metrics", "traces", "logs"}
    for section, known in KNOWN.items():
        used = {name for pipeline in pipelines.values() for name in pipeline[section]}
        assert used == set(given[section]) and used <= known
    assert all({"receivers", "exporters"} <= pipeline.keys() for pipeline in pipelines.values())


def test_workloads_reach_it_over_otlp_and_it_measures_the_host(given: dict[str, Any]) -> None:
    assert given["receivers"]["otlp"]["protocols"].keys() == {"http", "grpc"}
    assert given["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    # Each at the level of its defaults: nothing is switched off or filtered.
    assert given["receivers"]["hostmetrics"]["scrapers"] == {name: {} for name in SCRAPERS}
    pipelines = given["service"]["pipelines"]
    assert "hostmetrics" in pipelines["metrics"]["receivers"]
    assert all("otlp" in pipeline["receivers"] for pipeline in pipelines.values())


def test_it_measures_containers_or_the_cluster_that_runs_them() -> None:
    assert "podman_stats" in configuration(ENGINE)["service"]["pipelines"]["metrics"]["receivers"]
    assert "docker_stats" in (FOLDER / ENGINE).read_text("utf-8")
    given = configuration(KUBERNETES)
    pipelines = given["service"]["pipelines"]
    assert {"k8s_cluster", "kubeletstats"} <= set(pipelines["metrics"]["receivers"])
    assert "k8sobjects" in pipelines["logs"]["receivers"]
    assert [each["name"] for each in given["receivers"]["k8sobjects"]["objects"]] == ["events"]
    assert set(given["processors"]["k8sattributes"]["extract"]["metadata"]) == ATTRIBUTES
    assert all("k8sattributes" in pipeline["processors"] for pipeline in pipelines.values())


def test_no_exporter_is_preset_and_one_may_be_added(given: dict[str, Any]) -> None:
    assert given["exporters"] == {"nop": {}}
    assert all(pipeline["exporters"] == ["nop"] for pipeline in given["service"]["pipelines"].values())
