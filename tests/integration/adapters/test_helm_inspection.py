"""What a plan is told of a chart: found out with the real helm and a real registry, or said to be unknown."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.helm.inspection import ChartInspection
from homeport.cli.local.diagnosis import check_charts
from homeport.core.model.deployment import ComponentSpec
from homeport.vocabulary import ProfileType
from tests.support.charts import chart_artifact
from tests.support.registry import RunningRegistry, running_registry

pytestmark = pytest.mark.anyio

POD = json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
JOB = "{{ if .Values.job }}" + json.dumps({"kind": "Job", "metadata": {"name": "night"}}) + "{{ end }}"
ACCOUNT = json.dumps({"kind": "ServiceAccount", "metadata": {"name": "robot"}})


@pytest.fixture
def registry() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        yield running


def a_spec(registry: RunningRegistry, **values: str) -> ComponentSpec:
    return ComponentSpec("web", ProfileType.HELM, registry.repository("chart"), "1.0.0", environment=values)


async def test_kinds_are_named_and_a_parameter_can_turn_them_off(registry: RunningRegistry) -> None:
    charts = ChartInspection(OciRegistry(), os.environ)
    artifact = chart_artifact({"a.yaml": POD, "b.yaml": JOB, "c.yaml": ACCOUNT}, {"job": True})
    await OciRegistry().push(registry.repository("chart"), "1.0.0", artifact)
    refused = (await charts.judge(a_spec(registry))).refused
    assert refused is not None
    assert refused.startswith("UNSUPPORTED_KIND: The chart holds Job night, which needs Kubernetes")
    verdict = await charts.judge(a_spec(registry, job="false"))
    assert (verdict.refused, verdict.unknown) == (None, None)
    assert verdict.notes == ("ServiceAccount robot is left out: there is no Kubernetes API to use it with.",)


async def test_what_cannot_be_found_out_is_said(
    registry: RunningRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = (await ChartInspection(OciRegistry(), os.environ).judge(a_spec(registry))).unknown
    assert absent is not None
    assert "could not be fetched" in absent
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    without = (await ChartInspection(OciRegistry(), {"PATH": str(tmp_path)}).judge(a_spec(registry))).unknown
    assert without == "what its chart needs is not known: central has no program helm to render it"


def test_the_doctor_says_that_helm_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (present, *_) = check_charts("podman", os.environ)
    assert present.level == "ok"
    assert present.message.startswith("helm v")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (missing,) = check_charts("podman", {"PATH": str(tmp_path)})
    assert (missing.level, "does not run helm charts" in missing.message) == ("note", True)
    assert "pip install" in missing.hint
    assert check_charts("process", {}) == []
