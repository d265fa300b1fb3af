"""Adds to a plan what the charts of a helm profile would meet on nodes without Kubernetes: the kinds that cannot run
there, and what differs there. Every chart is checked once, however many sites get it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.node import Node
from homeport.fleet.central.plans.preview import DeploymentPlan, Plan
from homeport.ports import NODES, WHOLE, Charts, ChartVerdict, NodeFilter, Store
from homeport.vocabulary import Digest, NodeId, ProfileType, SiteName

KUBERNETES = "kubernetes"


async def with_chart_warnings(plan: Plan, store: Store, charts: Charts) -> Plan:
    if not any(_has_charts(deployment) for deployment in plan.deployments):
        return plan
    async with store.read() as reader:
        there = NodeFilter(sites=frozenset(deployment.site for deployment in plan.deployments))
        nodes = {(node.site, node.id): node for node in (await reader.page(NODES, there, WHOLE)).items}
    seen: dict[Digest, ChartVerdict] = {}
    judged = []
    for deployment in plan.deployments:
        lines: list[str] = []
        for spec in _charts_without_kubernetes(deployment, nodes):
            if spec.digest not in seen:
                seen[spec.digest] = await charts.judge(spec)
            lines += _lines(spec, seen[spec.digest])
        judged.append(replace(deployment, warnings=(*deployment.warnings, *lines)) if lines else deployment)
    return replace(plan, deployments=tuple(judged))


def _has_charts(plan: DeploymentPlan) -> bool:
    return plan.after is not None and plan.action != "unchanged" and plan.after.profile_type is ProfileType.HELM


def _charts_without_kubernetes(
    plan: DeploymentPlan, nodes: Mapping[tuple[SiteName, NodeId], Node]
) -> Sequence[ComponentSpec]:
    """None where the deployment stays unchanged, or goes only to clusters."""
    if plan.after is None or not _has_charts(plan):
        return ()
    known = [nodes[plan.site, node_id] for node_id in plan.nodes if (plan.site, node_id) in nodes]
    engines = [node.info.capabilities.engine for node in known]
    if engines and all(KUBERNETES in engine for engine in engines):
        return ()
    return plan.after.release.components


def _lines(spec: ComponentSpec, verdict: ChartVerdict) -> list[str]:
    if verdict.unknown is not None:
        return [f"{spec.name}: {verdict.unknown}"]
    if verdict.refused is not None:
        return [f"{spec.name} would fail with {verdict.refused}"]
    return [f"{spec.name}: {note}" for note in verdict.notes]
