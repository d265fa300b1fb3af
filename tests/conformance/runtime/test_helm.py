"""What only charts can show, on real Podman without Kubernetes: several pods, Services, settings, volumes, kinds."""

import json
from dataclasses import replace
from typing import Any

import pytest

from homeport.adapters.network.http_client import TcpAddress, ask
from homeport.core.node.health import HealthVerdict
from homeport.errors import WorkFailed
from homeport.ports import Runtime
from homeport.vocabulary import Code, DeploymentId, ProfileType
from tests.conformance.runtime.stands import CHECK, STAYS, ComposeStand, HelmStand
from tests.conformance.runtime.usage import ids_by_name, ignore, install, observe_one, read_logs
from tests.support.charts import deployment
from tests.support.health import settle
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio

SERVES = f"mkdir -p /www; echo $NAME > /www/index.html; httpd -p 8080 -h /www; {STAYS}"


def stays(stand: HelmStand, **more: Any) -> dict[str, Any]:
    return {"image": stand.image, "command": ["sh", "-c", STAYS], **more}


def document(kind: str, name: str, **content: Any) -> str:
    return json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content})


async def test_a_service_is_a_name_for_its_pods(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    # A question that is lost while Podman's name server takes up the second pod costs five seconds.
    asks = f"until wget -q -O- http://db:8080/; do sleep 0.1; done; {STAYS}"
    server = {
        "image": helm_stand.image,
        "command": ["sh", "-c", SERVES],
        "env": [{"name": "NAME", "value": "from-the-database"}],
        "ports": [{"name": "web", "containerPort": 8080}],
    }
    service = document(
        "Service", "db", spec={"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": "web"}]}
    )
    told: list[str] = []
    workload = await helm_stand.chart(
        "two",
        {
            "a.yaml": deployment("asker", {"image": helm_stand.image, "command": ["sh", "-c", asks]}),
            "b.yaml": deployment("server", server),
            "c.yaml": service,
        },
    )
    await helm_runtime.prepare(workload, lambda step, message, done, total: told.append(message))
    await helm_runtime.apply(workload, ignore)
    assert "Service db has no port 80 of its own here: use port 8080." in told
    assert len(await ids_by_name(helm_runtime, helm_stand)) == 2
    assert "from-the-database" in await read_logs(helm_runtime, workload, "from-the-database")


async def test_a_load_balancer_publishes_and_a_probe_over_http_is_asked(
    helm_runtime: Runtime, helm_stand: HelmStand
) -> None:
    port = free_port()
    probe = {"httpGet": {"path": "/index.html", "port": "web"}, "periodSeconds": 1}
    server = {
        "image": helm_stand.image,
        "command": ["sh", "-c", SERVES],
        "env": [{"name": "NAME", "value": "published"}],
        "ports": [{"name": "web", "containerPort": 8080}],
        "readinessProbe": probe,
    }
    ports = [{"port": port, "targetPort": "web"}]
    service = document("Service", "web", spec={"type": "LoadBalancer", "selector": {"app": "server"}, "ports": ports})
    workload = await helm_stand.chart("web", {"a.yaml": deployment("server", server), "b.yaml": service})
    await install(helm_runtime, workload)
    assert await settle(helm_runtime, workload) == HealthVerdict(True)
    answer = await ask(TcpAddress("127.0.0.1", port), "GET", "/")
    assert answer.body == b"published\n"


async def test_settings_and_secrets_reach_variables_and_files(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    shows = f"echo env=$COLOUR,$PASSWORD; cat /etc/app/app.conf /run/secret/token /scratch/made; {STAYS}"
    container = {
        "image": helm_stand.image,
        "command": ["sh", "-c", shows],
        "envFrom": [{"configMapRef": {"name": "conf"}}],
        "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}],
        "volumeMounts": [
            {"name": "conf", "mountPath": "/etc/app"},
            {"name": "keys", "mountPath": "/run/secret"},
            {"name": "work", "mountPath": "/scratch"},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    init = {
        "name": "init",
        "image": helm_stand.image,
        "command": ["sh", "-c", "echo made-before > /scratch/made"],
        "volumeMounts": [{"name": "work", "mountPath": "/scratch"}],
    }
    volumes = [
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "work", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    templates = {
        "a.yaml": deployment("main", container, initContainers=[init], volumes=volumes),
        "b.yaml": document("ConfigMap", "conf", data={"COLOUR": "blue", "app.conf": "line=@greeting@\n"}).replace(
            "@greeting@", "{{ .Values.greeting }}"
        ),
        "c.yaml": document("Secret", "keys", stringData={"token": "@token@"}).replace(
            '"@token@"', "{{ .Values.token | quote }}"
        ),
        "d.yaml": document("PersistentVolumeClaim", "data", spec={"accessModes": ["ReadWriteOnce"]}),
    }
    workload = await helm_stand.chart("settings", templates, {"greeting": '"one"', "token": "secret://token"})
    spec = replace(workload.spec, secrets={"token": 1}, secret_values={"token": "s3cret, with=signs"})
    workload = replace(workload, spec=spec)
    await install(helm_runtime, workload)
    text = await read_logs(helm_runtime, workload, "made-before")
    assert "env=blue,s3cret, with=signs" in text
    assert "line=one" in text
    assert "s3cret, with=signs" in text.partition("line=one")[2]
    assert await settle(helm_runtime, workload) == HealthVerdict(True), "an init container that ended is no failure"

    changed = replace(workload, spec=replace(spec, environment={"greeting": '"two"', "token": "secret://token"}))
    await install(helm_runtime, changed)
    assert "line=two" in await read_logs(helm_runtime, changed, "line=two")

    await helm_runtime.remove(helm_stand.deployment_id, "web", remove_images=False)
    mark = helm_stand.deployment_id.replace("-", "")[:12]
    left = [name for name in helm_stand.engine("volume", "ls", "--quiet").splitlines() if mark in name]
    assert [name.rpartition("-")[2] for name in left] == ["data"], "a claim is data and stays, all else goes"
    helm_stand.engine("volume", "rm", *left)
    assert mark not in helm_stand.engine("network", "ls")
    assert mark not in helm_stand.engine("pod", "ls")


async def test_kinds_that_need_kubernetes_are_named(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    hook = json.loads(document("Pod", "migrate", spec={}))
    hook["metadata"]["annotations"] = {"helm.sh/hook": "pre-install"}
    workload = await helm_stand.chart(
        "kinds",
        {
            "a.yaml": deployment("main", stays(helm_stand)),
            "b.yaml": document("StatefulSet", "db", spec={}),
            "c.yaml": document("Ingress", "front", spec={}),
            "d.yaml": json.dumps(hook),
            "e.yaml": document("ServiceAccount", "robot"),
        },
    )
    with pytest.raises(WorkFailed) as failure:
        await helm_runtime.prepare(workload, ignore)
    assert failure.value.code is Code.UNSUPPORTED_KIND
    assert failure.value.source == "web"
    assert str(failure.value).startswith(
        "The chart holds StatefulSet db, Ingress front, Pod migrate (a hook: pre-install)"
    )
    assert "--kubeconfig" in str(failure.value)
    assert list(await helm_runtime.observe(helm_stand.deployment_id)) == []


async def test_a_chart_that_cannot_be_rendered_says_why(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    chart = {"a.yaml": '{{ required "Say which colour." .Values.colour }}'}
    workload = await helm_stand.chart("required", chart)
    with pytest.raises(WorkFailed) as failure:
        await helm_runtime.prepare(workload, ignore)
    assert failure.value.code is Code.CREATE_FAILED
    assert "Say which colour." in str(failure.value)


async def test_what_is_no_chart_is_refused(helm_runtime: Runtime, helm_stand: HelmStand, image: str) -> None:
    compose = ComposeStand("podman", helm_stand.folder, helm_stand.registry_host, helm_stand.options, image=image)
    other = await compose.runs()
    workload = replace(other, spec=replace(other.spec, type=ProfileType.HELM))
    with pytest.raises(WorkFailed) as failure:
        await helm_runtime.prepare(workload, ignore)
    assert failure.value.code is Code.COMPONENT_FETCH_FAILED
    assert "it is not a helm chart" in str(failure.value)


async def test_only_the_pod_that_is_gone_comes_back(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    """The second one's name begins with the first one's: names alone would confuse them."""
    templates = {
        "a.yaml": deployment("app", stays(helm_stand)),
        "b.yaml": deployment("app-db", stays(helm_stand), replicas=2),
    }
    workload = await helm_stand.chart("three", templates)
    await install(helm_runtime, workload)
    before = await ids_by_name(helm_runtime, helm_stand)
    assert len(before) == 3
    gone = next(name for name in before if name.endswith("app-db-1-app"))
    helm_stand.engine("pod", "rm", "--force", gone.removesuffix("-app"))
    (observation,) = await helm_runtime.observe(helm_stand.deployment_id)
    assert not observation.is_running
    assert f"{gone} has no container" in (await settle(helm_runtime, workload)).message
    await install(helm_runtime, workload)
    after = await ids_by_name(helm_runtime, helm_stand)
    assert {name for name in before if after[name] != before[name]} == {gone}


async def test_a_stopped_pod_is_started_again_not_replaced(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    workload = await helm_stand.runs(GREETING="hello")
    await install(helm_runtime, workload)
    before = await ids_by_name(helm_runtime, helm_stand)
    helm_stand.engine("kill", *before.values())
    (stopped,) = await helm_runtime.observe(helm_stand.deployment_id)
    assert not stopped.is_running
    await install(helm_runtime, workload)
    (running,) = await helm_runtime.observe(helm_stand.deployment_id)
    assert running.is_running
    assert await ids_by_name(helm_runtime, helm_stand) == before


async def test_two_deployments_of_one_chart_share_a_machine(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    workload = await helm_stand.runs(GREETING="hello")
    second = replace(workload, deployment_id=DeploymentId(helm_stand.deployment_id[::-1]))
    try:
        await install(helm_runtime, workload)
        await install(helm_runtime, second)
        mine = await ids_by_name(helm_runtime, helm_stand)
        assert mine.keys().isdisjoint(
            each.name for each in (await observe_one(helm_runtime, second.deployment_id)).containers
        )
        await helm_runtime.remove(second.deployment_id, "web", remove_images=False)
        assert await ids_by_name(helm_runtime, helm_stand) == mine
    finally:
        await helm_runtime.remove(second.deployment_id, "web", remove_images=False)


async def test_a_component_may_change_its_type(helm_runtime: Runtime, helm_stand: HelmStand, image: str) -> None:
    compose = ComposeStand("podman", helm_stand.folder, helm_stand.registry_host, helm_stand.options, image=image)
    compose.deployment_id = helm_stand.deployment_id
    compose.node_id = helm_stand.node_id
    chart, services = await helm_stand.runs(GREETING="chart"), await compose.runs(GREETING="services")
    for workload in (chart, services, chart):
        await install(helm_runtime, workload)
        (observation,) = await helm_runtime.observe(helm_stand.deployment_id)
        assert (observation.digest, observation.is_running) == (workload.spec.digest, True)
        assert len(observation.containers) == 1
    assert await settle(helm_runtime, chart) == HealthVerdict(True)


async def test_a_failing_probe_tells_what_it_printed(helm_runtime: Runtime, helm_stand: HelmStand) -> None:
    probe = {"exec": {"command": ["sh", "-c", CHECK]}, "periodSeconds": 1, "failureThreshold": 1}
    workload = await helm_stand.chart("probe", {"a.yaml": deployment("main", stays(helm_stand, livenessProbe=probe))})
    await install(helm_runtime, workload)
    health = await settle(helm_runtime, workload)
    assert health.healthy is False
    assert "nothing-here" in health.message
