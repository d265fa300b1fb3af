"""The preview of a chart says what a node without Kubernetes would make of it."""

from dataclasses import replace

import pytest

from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.node import Node
from homeport.fleet.central.plans.charts import with_chart_warnings
from homeport.fleet.central.plans.preview import DeploymentPlan, Plan
from homeport.ports import ChartVerdict, Transaction
from homeport.vocabulary import ProfileType, SiteName
from tests.simulation.store import Disk, MemoryStore
from tests.support.builders import HOME, a_desired, a_node

pytestmark = pytest.mark.anyio


class Refusing:
    """`ports.Charts` that no node without Kubernetes can run."""

    async def judge(self, spec: ComponentSpec) -> ChartVerdict:
        return ChartVerdict(refused="UNSUPPORTED_KIND: DaemonSet")


@pytest.mark.parametrize(("engine", "is_warned"), [("podman", True), ("kubernetes", False)])
async def test_the_nodes_of_its_own_site_decide(engine: str, is_warned: bool) -> None:
    """Another site has a node of the same name, of the other kind."""
    node, other = a_node(), "kubernetes" if engine == "podman" else "podman"

    def with_engine(name: str, site: SiteName) -> Node:
        capabilities = replace(node.info.capabilities, engine=name)
        return replace(node, site=site, info=replace(node.info, capabilities=capabilities))

    async def work(tx: Transaction) -> None:
        await tx.put_node(with_engine(engine, HOME))
        await tx.put_node(with_engine(other, SiteName("away")))

    store = MemoryStore(Disk())
    await store.write(work)
    desired = a_desired(kind=ProfileType.HELM)
    wanted = DeploymentPlan(HOME, None, desired, desired.name, "create", {node.id: ()}, {}, (), None)
    (found,) = (await with_chart_warnings(Plan((wanted,)), store, Refusing())).deployments
    assert found.warnings == (("web would fail with UNSUPPORTED_KIND: DaemonSet",) if is_warned else ())
