"""Charts in a cluster: the real helm against a stand-in for the API server, which stores objects and runs nothing."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.helm.cluster import HelmInCluster
from homeport.core.model.deployment import ComponentSpec
from homeport.core.node.health import HealthVerdict
from homeport.core.node.telemetry_variables import otlp_variables
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.ports import Workload
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType
from tests.conformance.runtime.usage import ignore
from tests.support.charts import chart_artifact
from tests.support.engines import engine_environment
from tests.support.health import settle
from tests.support.kubernetes import Cluster, running_cluster

pytestmark = pytest.mark.anyio

SETTINGS = json.dumps(
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}, "data": {"greeting": "@"}}
).replace('"@"', "{{ .Values.greeting | quote }}")


POD = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web", "env": [{"name": "OWN", "value": "1"}]}]},
    }
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as running:
        yield running


async def a_workload(host: str, folder: Path, greeting: str, template: str = SETTINGS) -> Workload:
    deployment_id = DeploymentId(str(uuid.uuid5(uuid.NAMESPACE_URL, str(folder))))
    repository = f"oci://{host}/{deployment_id}"
    await OciRegistry().push(repository, "1.0.0", chart_artifact({"a.yaml": template}, {"greeting": ""}))
    values = {"greeting": json.dumps(greeting)}
    spec = ComponentSpec("web", ProfileType.HELM, repository, "1.0.0", environment=values, timeout_seconds=30)
    return Workload(deployment_id, spec, folder / "web")


async def test_a_release_is_installed_upgraded_seen_and_removed(
    cluster: Cluster, tmp_path: Path, registry_host: str
) -> None:
    runtime = HelmInCluster(cluster.kubeconfig, tmp_path, OciRegistry(), NodeId("n"), engine_environment())
    await runtime.start()
    workload = await a_workload(registry_host, tmp_path, "hello")
    assert list(await runtime.observe(workload.deployment_id)) == []
    assert (await settle(runtime, workload)).healthy is False
    for greeting in ("hello", "ahoy"):
        workload = await a_workload(registry_host, tmp_path, greeting)
        await runtime.prepare(workload, ignore)
        await runtime.apply(workload, ignore)
        ((name, settings),) = cluster.named("configmaps").items()
        assert name.startswith("web-")
        assert settings["data"] == {"greeting": greeting}
        (seen,) = await runtime.observe(workload.deployment_id)
        assert (seen.component, seen.digest, seen.is_running) == ("web", workload.spec.digest, True)
        assert await settle(runtime, workload) == HealthVerdict(True)
    releases = set(cluster.named("secrets"))
    await runtime.apply(workload, ignore)
    assert set(cluster.named("secrets")) == releases, "what already runs is not installed again"
    for _ in range(2):
        await runtime.remove(workload.deployment_id, "web", remove_images=False)
        assert cluster.objects == {}
        assert list(await runtime.observe(workload.deployment_id)) == []


async def test_what_the_cluster_refuses_is_said(cluster: Cluster, tmp_path: Path, registry_host: str) -> None:
    runtime = HelmInCluster(cluster.kubeconfig, tmp_path, OciRegistry(), NodeId("n"), engine_environment())
    await runtime.start()
    strange = SETTINGS.replace("ConfigMap", "Unheard")
    workload = await a_workload(registry_host, tmp_path, "x", strange)
    with pytest.raises(WorkFailed) as failure:
        await runtime.apply(workload, ignore)
    assert failure.value.code is Code.CREATE_FAILED
    assert "Unheard" in str(failure.value)


async def test_a_cluster_that_does_not_answer_is_no_empty_cluster(
    cluster: Cluster, tmp_path: Path, registry_host: str
) -> None:
    runtime = HelmInCluster(cluster.kubeconfig, tmp_path, OciRegistry(), NodeId("n"), engine_environment())
    await runtime.start()
    workload = await a_workload(registry_host, tmp_path, "hello")
    await runtime.apply(workload, ignore)
    cluster.kubeconfig.write_text(cluster.kubeconfig.read_text().replace("127.0.0.1:", "127.0.0.2:"))
    with pytest.raises(EngineUnavailable):
        await runtime.observe(workload.deployment_id)


async def test_charts_go_to_the_cluster_and_their_containers_are_told_where_the_collector_is(
    cluster: Cluster, tmp_path: Path, registry_host: str
) -> None:
    variables = otlp_variables("http://10.0.0.1:4318")
    options = EngineOptions(
        environment=engine_environment(), kubeconfig=cluster.kubeconfig, variables=dict(variables)
    )
    runtime = await open_runtime("process", tmp_path / "data", OciRegistry(), NodeId("n"), options=options)
    try:
        assert runtime.name == "process+kubernetes"
        assert set(runtime.profile_types) == {ProfileType.CUSTOM, ProfileType.HELM}
        workload = await a_workload(registry_host, tmp_path, "hello", f"{SETTINGS}\n---\n{POD}")
        workload = replace(workload, spec=replace(workload.spec, wait=False))
        await runtime.prepare(workload, ignore)
        await runtime.apply(workload, ignore)
        ((_, settings),) = cluster.named("configmaps").items()
        assert settings["data"] == {"greeting": "hello"}
        (container,) = cluster.named("pods")["web"]["spec"]["containers"]
        assert {each["name"]: each["value"] for each in container["env"]} == {**variables, "OWN": "1"}
        await runtime.remove(workload.deployment_id, "web", remove_images=False)
        assert cluster.objects == {}
    finally:
        await runtime.close()


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = EngineOptions(environment=engine_environment(), kubeconfig=tmp_path / "nothing")
    with pytest.raises(EngineUnavailable, match="There is no kubeconfig"):
        await open_runtime("process", tmp_path, OciRegistry(), NodeId("n"), options=options)
