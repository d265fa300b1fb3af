"""How a chart's objects become pods: what is refused, what is renamed, and what a Service comes to."""

import base64
import json
from typing import Any

import pytest
import yaml

from homeport.adapters.network.http_client import TcpAddress
from homeport.adapters.runtime.helm.kube_checks import address_of, rules_of
from homeport.adapters.runtime.helm.kube_kinds import explain_refused, read_manifests
from homeport.adapters.runtime.helm.kube_pods import KubePod, make_pods
from homeport.adapters.runtime.helm.kube_services import service_notes
from homeport.errors import InvalidInput

POD: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}


def a_pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**POD, "spec": {"containers": [{"name": "app", "image": "i:1", **each} for each in containers], **spec}}


def a_service(**spec: Any) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": "front"}, "spec": {"selector": {"app": "web"}, **spec}}


def only(*documents: dict[str, Any]) -> KubePod:
    (pod,) = make_pods(documents, "p", {"ours": "yes"})
    return pod


def container_of(pod: KubePod) -> dict[str, Any]:
    found: dict[str, Any] = pod.documents[-1]["spec"]["containers"][0]
    return found


def test_variables_of_the_machine_are_for_every_container_that_has_none_of_that_name() -> None:
    documents = [
        a_pod(
            {},
            {"name": "own", "env": [{"name": "A", "value": "mine"}]},
            initContainers=[{"name": "i", "image": "i:1"}],
        )
    ]
    (pod,) = make_pods(documents, "p", {}, {"A": "1"})
    spec = pod.documents[-1]["spec"]
    found = {each["name"]: each["env"] for each in (*spec["initContainers"], *spec["containers"])}
    assert found == {
        "i": [{"name": "A", "value": "1"}],
        "app": [{"name": "A", "value": "1"}],
        "own": [{"name": "A", "value": "mine"}],
    }


def test_kinds_are_used_left_out_or_refused() -> None:
    documents = [
        a_pod({}),
        {"kind": "List", "items": [{"kind": "StatefulSet", "metadata": {"name": "db"}}]},
        {"kind": "ServiceAccount", "metadata": {"name": "robot"}},
        {"kind": "ConfigMap", "metadata": {"name": "c", "annotations": {"helm.sh/hook": "pre-install"}}},
        {"kind": "Service", "metadata": {"name": "out"}, "spec": {"type": "ExternalName"}},
        None,
    ]
    rendered = read_manifests(yaml.safe_dump_all(documents))
    assert [document["kind"] for document in rendered.documents] == ["Pod"]
    assert rendered.refused == (
        "StatefulSet db",
        "ConfigMap c (a hook: pre-install)",
        "Service out of type ExternalName",
    )
    assert rendered.notes == ("ServiceAccount robot is left out: there is no Kubernetes API to use it with.",)
    sentence = explain_refused(rendered.refused)
    assert sentence.startswith("The chart holds StatefulSet db, ConfigMap c")
    assert "DaemonSet" in sentence


@pytest.mark.parametrize("text", ["", "kind: ConfigMap\nmetadata: {name: c}\n"])
def test_a_chart_that_runs_nothing_is_refused(text: str) -> None:
    assert read_manifests(text).refused == ("no Pod, Deployment or DaemonSet",)


@pytest.mark.parametrize("text", ["a: [", "just words"])
def test_what_is_no_manifest_is_said(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_manifests(text)


def test_objects_that_are_not_complete_are_said() -> None:
    with pytest.raises(InvalidInput, match="not complete"):
        make_pods([{"kind": "Deployment", "metadata": {"name": "x"}, "spec": {}}], "p", {})


def test_replicas_are_pods_of_their_own() -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": a_pod({})["spec"]}
    document = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": template}}
    pods = make_pods([document], "p", {})
    assert [pod.name for pod in pods] == ["p-web-0", "p-web-1"]
    assert {pod.documents[-1]["metadata"]["labels"]["homeport.containers"] for pod in pods} == {
        "p-web-0/app,p-web-1/app"
    }
    stopped = {**document, "spec": {"replicas": 0, "template": template}}
    assert make_pods([stopped], "p", {}) == ()


def test_a_daemon_set_is_one_pod_on_this_machine() -> None:
    document = {"kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"template": {"spec": a_pod({})["spec"]}}}
    assert only(document).name == "p-agent"


def test_settings_are_renamed_with_their_pod_and_secrets_become_plain() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": base64.b64encode(b"hidden").decode()}}
    unused = {"kind": "ConfigMap", "metadata": {"name": "unused"}, "data": {"a": "b"}}
    variable = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    volumes = [
        {"name": "v", "secret": {"secretName": "s", "optional": True}},
        {"name": "e", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    pod = only(
        secret,
        unused,
        a_pod({"env": [variable], "volumeMounts": [{"name": "e", "mountPath": "/e"}]}, volumes=volumes),
    )
    settings, made = pod.documents
    assert (settings["kind"], settings["metadata"]["name"], settings["data"]) == (
        "ConfigMap",
        "p-web.secret.s",
        {"k": "hidden"},
    )
    assert container_of(pod)["env"][0]["valueFrom"] == {"configMapKeyRef": {"name": "p-web.secret.s", "key": "k"}}
    assert made["spec"]["volumes"] == [
        {"name": "v", "configMap": {"optional": True, "name": "p-web.secret.s"}},
        {"name": "p-web.e", "emptyDir": {}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "p-data"}},
    ]
    assert container_of(pod)["volumeMounts"] == [{"name": "p-web.e", "mountPath": "/e"}]
    assert [json.loads(each)["kind"] for each in pod.manifest.split(b"\n---\n")] == ["ConfigMap", "Pod"]


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": base64.b64encode(b"\xff").decode()}},
        {"kind": "ConfigMap", "metadata": {"name": "s"}, "binaryData": {"k": "AA=="}},
    ],
)
def test_binary_settings_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="binary data"):
        only(document, a_pod({}))


def test_the_pod_is_ours_to_restart_and_to_probe() -> None:
    ready = {"httpGet": {"path": "/", "port": "web"}}
    ports = [{"name": "web", "containerPort": 8080}]
    pod = only(a_pod({"ports": ports, "readinessProbe": ready, "livenessProbe": {"exec": {"command": ["x"]}}}))
    made = pod.documents[-1]
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["hostname"] == "web"
    assert not {"readinessProbe", "livenessProbe"} & container_of(pod).keys()
    checks = json.loads(made["metadata"]["labels"]["homeport.checks"])
    assert checks == {"p-web-app": {"httpGet": {"path": "/", "port": 8080}}}
    assert container_of(pod)["ports"] == [], "only what asks for a port of the machine gets one"
    assert made["metadata"]["labels"]["app"] == "web"
    assert made["metadata"]["labels"]["ours"] == "yes"


@pytest.mark.parametrize(
    ("service", "published", "notes"),
    [
        ({"ports": [{"port": 8080}]}, None, ()),
        (
            {"ports": [{"port": 80, "targetPort": 8080}]},
            None,
            ("Service front has no port 80 of its own here: use port 8080.",),
        ),
        ({"ports": [{"port": 8080, "targetPort": "web"}]}, None, ()),
        (
            {"type": "LoadBalancer", "ports": [{"port": 8080, "targetPort": 8080}]},
            8080,
            ("Service front is published on port 8080 of the machine.",),
        ),
        (
            {"type": "NodePort", "ports": [{"port": 8080, "nodePort": 30080}]},
            30080,
            ("Service front is published on port 30080 of the machine.",),
        ),
        (
            {"type": "NodePort", "ports": [{"port": 8080}]},
            None,
            ("Service front is not published: it names no nodePort, and none is chosen here.",),
        ),
    ],
)
def test_what_a_service_comes_to(service: dict[str, Any], published: int | None, notes: tuple[str, ...]) -> None:
    document = a_service(**service)
    server = a_pod({"ports": [{"name": "web", "containerPort": 8080}]})
    pod = only(document, server)
    assert pod.aliases == ("front",)
    assert [port["hostPort"] for port in container_of(pod)["ports"]] == ([published] if published else [])
    assert service_notes([document, server]) == notes


def test_a_service_that_selects_others_is_no_name_of_this_pod() -> None:
    assert only(a_service(selector={"app": "other"}), a_pod({})).aliases == ()
    assert only(a_service(selector={}), a_pod({})).aliases == ()


def test_a_probe_is_paced_as_kubernetes_would() -> None:
    rules = rules_of({"exec": {"command": ["x"]}})
    assert (rules.interval_seconds, rules.timeout_seconds, rules.retries) == (10.0, 1.0, 3)
    rules = rules_of({"periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 1, "initialDelaySeconds": 30})
    assert (rules.interval_seconds, rules.timeout_seconds, rules.retries, rules.start_period_seconds) == (2, 5, 1, 30)


def test_where_a_port_is_reached_from_the_machine() -> None:
    published = {"Ports": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}]}, "IPAddress": "10.0.0.2"}
    assert address_of({"NetworkSettings": published}, 80) == TcpAddress("127.0.0.1", 8080)
    assert address_of({"NetworkSettings": published}, 81) == TcpAddress("10.0.0.2", 81)
    assert address_of({"NetworkSettings": {"Networks": {"n": {"IPAddress": "10.0.0.3"}}}}, 81) == TcpAddress(
        "10.0.0.3", 81
    )
    assert address_of({"NetworkSettings": {}}, 80) is None


def test_annotations_give_podman_no_orders() -> None:
    """Of `seccomp.security.alpha.kubernetes.io/pod: unconfined` it makes a pod without a seccomp profile."""
    pod = a_pod({})
    pod = {**pod, "metadata": {**pod["metadata"], "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}}}
    assert "annotations" not in only(pod).documents[-1]["metadata"]
