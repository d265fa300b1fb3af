"""Turns a chart's objects into pods for `podman kube play`, which has no namespaces, controllers or services. Pure.

Every Deployment and DaemonSet becomes the pods it would create here. All names are made unique, so that two
deployments of one chart can share a machine; inside the component the chart's names still work, because each Service
is a DNS name of the pods that it selects. The node does what Kubernetes does with pods: it restarts them and runs
their probes, so kube play is given neither a restart policy nor a probe.
"""

import base64
import binascii
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from homeport.adapters.runtime.helm.kube_kinds import Json, name_of
from homeport.adapters.runtime.helm.kube_services import aliases_of, publish
from homeport.errors import InvalidInput
from homeport.lazy_dataclass import dataclass

LABEL_CONTAINERS: Final = "homeport.containers"
"""All containers of the component as `pod/container`, on each of its pods: a remaining one shows which are
missing."""
LABEL_POD: Final = "homeport.pod"
LABEL_CHECKS: Final = "homeport.checks"
"""The probe of each container that has one, as JSON by container name."""
REPLICAS_MAX: Final = 100
HOSTNAME_MAX: Final = 63
PROBES: Final = ("readinessProbe", "livenessProbe", "startupProbe")
"""Readiness first: it says whether the app can be used, which is what INSTALLED means."""


@dataclass(frozen=True, slots=True)
class KubePod:
    name: str
    documents: tuple[Json, ...]
    """The pod and the ConfigMaps it uses."""
    images: tuple[str, ...]
    aliases: tuple[str, ...]
    """The Services that select it, as names on the component's network."""
    on_host_network: bool = False

    @property
    def manifest(self) -> bytes:
        """JSON, which is YAML too."""
        return b"\n---\n".join(json.dumps(document).encode() for document in self.documents)

    @property
    def scratch(self) -> str:
        """The name prefix of its temporary volumes, which are removed with it."""
        return f"{self.name}."


@dataclass(frozen=True, slots=True)
class _Chart:
    """What all pods of a component share."""

    project: str
    settings: Mapping[tuple[str, str], Mapping[str, str]]
    """The data of each ConfigMap and Secret, by kind and name."""
    services: Sequence[Json]
    labels: Mapping[str, str]


def make_pods(
    documents: Sequence[Json], project: str, labels: Mapping[str, str], variables: Mapping[str, str] | None = None
) -> tuple[KubePod, ...]:
    """`project` is the prefix of every name, `variables` are for every container that has none of that name. Raises
    InvalidInput for objects that do not match their kind."""
    try:
        settings = {
            (document["kind"], name_of(document)): _plain_settings(document)
            for document in documents
            if document["kind"] in ("ConfigMap", "Secret")
        }
        services = [document for document in documents if document["kind"] == "Service"]
        templates = [pair for document in documents for pair in _templates(document)]
        for _, template in templates:
            _add_variables(template["spec"], variables or {})
        containers = ",".join(
            f"{project}-{name}/{each['name']}" for name, pod in templates for each in pod["spec"]["containers"]
        )
        marked = {**labels, LABEL_CONTAINERS: containers}
        chart = _Chart(project, settings, services, marked)
        return tuple(_pod(chart, name, pod) for name, pod in templates)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidInput(f"The chart renders to objects that are not complete ({error!r}).") from error


def _add_variables(spec: Json, variables: Mapping[str, str]) -> None:
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        own = container.get("env") or []
        known = {each["name"] for each in own}
        more = [{"name": name, "value": value} for name, value in variables.items() if name not in known]
        if more:
            container["env"] = [*more, *own]


def _templates(document: Json) -> Iterator[tuple[str, Json]]:
    """Each pod of a workload, with its name in the component."""
    name, kind = name_of(document), document["kind"]
    if kind == "Pod":
        yield name, copy.deepcopy({"metadata": document["metadata"], "spec": document["spec"]})
    elif kind in ("Deployment", "DaemonSet"):
        spec = document["spec"]
        wanted = spec.get("replicas") if kind == "Deployment" else 1
        count = 1 if wanted is None else int(wanted)
        if count > REPLICAS_MAX:
            raise ValueError(f"{count} replicas")
        for position in range(count):
            template = copy.deepcopy(spec["template"])
            yield (name if count == 1 else f"{name}-{position}"), template


def _pod(chart: _Chart, name: str, template: Json) -> KubePod:
    full, spec = f"{chart.project}-{name}", template["spec"]
    metadata = template.get("metadata") or {}
    own = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
    publish(spec, own, chart.services)
    checks = {f"{full}-{each['name']}": check for each in spec["containers"] if (check := _check(each))}
    spec["restartPolicy"] = "Never"
    spec.setdefault("hostname", name[:HOSTNAME_MAX].rstrip("-."))
    used: dict[tuple[str, str], str] = {}
    every = [*spec["containers"], *(spec.get("initContainers") or [])]
    for container in every:
        container["imagePullPolicy"] = "IfNotPresent"
        # Podman 4 would publish the others on the host, with their own numbers.
        container["ports"] = [port for port in container.get("ports") or [] if port.get("hostPort")]
        _rename_sources(container, used, full)
    _rename_volumes(spec, used, chart.project, full)
    # Without its annotations: Podman takes orders from some, such as a pod without seccomp; nobody else reads them.
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": full,
            "labels": {**own, **chart.labels, LABEL_POD: full, LABEL_CHECKS: json.dumps(checks)},
        },
        "spec": spec,
    }
    maps = tuple(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": renamed}, "data": dict(chart.settings[key])}
        for key, renamed in used.items()
        if key in chart.settings
    )
    images = tuple(dict.fromkeys(str(container["image"]) for container in every))
    return KubePod(full, (*maps, pod), images, aliases_of(own, chart.services), bool(spec.get("hostNetwork")))


def _plain_settings(document: Json) -> Mapping[str, str]:
    """A Secret as a ConfigMap: Podman 4 cannot pass a Secret's value to a variable."""
    found = {str(key): str(value) for key, value in (document.get("data") or {}).items()}
    if document["kind"] == "ConfigMap":
        if document.get("binaryData"):
            raise InvalidInput(f"ConfigMap {name_of(document)} holds binary data, which kube play cannot pass on.")
        return found
    for key, value in found.items():
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            message = f"Secret {name_of(document)} holds binary data in {key}, which kube play cannot pass on."
            raise InvalidInput(message) from error
    return found | {str(key): str(value) for key, value in (document.get("stringData") or {}).items()}


def _rename_sources(container: Json, used: dict[tuple[str, str], str], full: str) -> None:
    """Renames the ConfigMaps and Secrets that variables come from."""
    for source in container.get("envFrom") or []:
        _as_config_map(source, "secretRef", "configMapRef", used, full)
    for variable in container.get("env") or []:
        source = variable.get("valueFrom") or {}
        _as_config_map(source, "secretKeyRef", "configMapKeyRef", used, full)


def _as_config_map(source: Json, secret: str, config_map: str, used: dict[tuple[str, str], str], full: str) -> None:
    kind = "Secret" if secret in source else "ConfigMap"
    reference = source.pop(secret, None) or source.get(config_map)
    if reference is not None:
        renamed = _use(used, kind, str(reference["name"]), full)
        source[config_map] = {**reference, "name": renamed}


def _rename_volumes(spec: Json, used: dict[tuple[str, str], str], project: str, full: str) -> None:
    """Temporary volumes are named after their pod, with a dot; claims outlive it and are named after the project."""
    renamed: dict[str, str] = {}
    for volume in spec.get("volumes") or []:
        if "secret" in volume:
            secret = volume.pop("secret")
            volume["configMap"] = {
                **{key: value for key, value in secret.items() if key != "secretName"},
                "name": _use(used, "Secret", str(secret["secretName"]), full),
            }
        elif "configMap" in volume:
            volume["configMap"]["name"] = _use(used, "ConfigMap", str(volume["configMap"]["name"]), full)
        elif "emptyDir" in volume:
            renamed[volume["name"]] = f"{full}.{volume['name']}"
            volume["name"] = renamed[volume["name"]]
        elif "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]
            claim["claimName"] = f"{project}-{claim['claimName']}"
    for container in (*spec["containers"], *(spec.get("initContainers") or [])):
        for mount in container.get("volumeMounts") or []:
            mount["name"] = renamed.get(mount["name"], mount["name"])


def _use(used: dict[tuple[str, str], str], kind: str, name: str, full: str) -> str:
    return used.setdefault((kind, name), f"{full}.{kind.lower()}.{name}")


def _check(container: Json) -> Json | None:
    """The probe that decides the container's health, with its port as a number. All probes are removed from the
    container."""
    probes = [container.pop(probe, None) for probe in PROBES]
    found: Json | None = next(filter(None, probes), None)
    if found is None:
        return None
    for way in ("httpGet", "tcpSocket"):
        if way in found:
            found[way]["port"] = port_number(found[way]["port"], container)
    if "grpc" in found:
        return {**found, "tcpSocket": {"port": found["grpc"]["port"]}}
    return found


def port_number(port: Any, container: Json) -> int:
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    for each in container.get("ports") or []:
        if each.get("name") == port:
            return int(each["containerPort"])
    raise ValueError(f"there is no port {port}")
