"""The metrics of jobs, pipelines and tunnels are those that the documentation lists."""

import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric

from homeport.fleet.shared.tunnels import OpenTunnels
from homeport.jobs.metrics import JobMetrics
from homeport.pipelines.metrics import PipelineMetrics
from homeport.tunnel.metrics import TunnelMetrics

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def names(metrics: Iterable[Metric]) -> set[str]:
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics}


def test_each_metric_of_jobs_pipelines_and_tunnels_is_documented_and_exists() -> None:
    exists = names(JobMetrics().collect()) | names(TunnelMetrics({"site": OpenTunnels()}).collect())
    exists |= names(PipelineMetrics().collect())
    documented = set(re.findall(r"`(homeport_(?:jobs?|pipeline|tunnel)\w*)", PAGE.read_text()))
    assert documented == exists
