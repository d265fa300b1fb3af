"""Inspects a chart before anything is deployed: it is pulled from its registry and rendered here, if helm is
installed.

For plans. What cannot be determined is reported, never guessed: central may have no helm, or not reach the registry.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from homeport.adapters.runtime.helm.chart import chart_path, fetch_chart
from homeport.adapters.runtime.helm.kube_kinds import explain_refused, read_manifests
from homeport.adapters.runtime.helm.kube_services import service_notes
from homeport.adapters.runtime.helm.program import find_helm, render
from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import InvalidInput, WorkFailed
from homeport.ports import ChartVerdict, Registry, Workload
from homeport.vocabulary import Code, DeploymentId

FETCH_SECONDS = 15.0
"""Short, because a user waits for the plan."""


class ChartInspection:
    def __init__(self, registry: Registry, environment: Mapping[str, str]) -> None:
        self._registry = registry
        self._environment = engine_environment(environment)

    async def judge(self, spec: ComponentSpec) -> ChartVerdict:
        helm = find_helm(self._environment)
        if helm is None:
            return ChartVerdict(unknown="what its chart needs is not known: central has no program helm to render it")
        with tempfile.TemporaryDirectory(prefix="homeport-chart-") as folder:
            hasty = replace(spec, timeout_seconds=min(spec.timeout_seconds, FETCH_SECONDS))
            workload = Workload(DeploymentId(""), hasty, Path(folder))
            try:
                await fetch_chart(self._registry, hasty, chart_path(workload))
                rendered = read_manifests(await render(helm, workload, chart_path(workload), self._environment))
                notes = rendered.notes + service_notes(rendered.documents)
            except (WorkFailed, InvalidInput, KeyError, TypeError, ValueError, AttributeError) as error:
                return ChartVerdict(unknown=f"what its chart needs is not known: {error}")
        if rendered.refused:
            return ChartVerdict(refused=f"{Code.UNSUPPORTED_KIND}: {explain_refused(rendered.refused)}")
        return ChartVerdict(notes=notes)
