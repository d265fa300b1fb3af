"""Services without Kubernetes. Pure.

A Service is a DNS name of the pods that it selects; a NodePort or a LoadBalancer also publishes their ports on the
host. It has no port of its own: clients must use the port that the container listens on, and where the two differ, a
note says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from homeport.adapters.runtime.helm.kube_kinds import Json, name_of


def aliases_of(labels: Mapping[str, str], services: Sequence[Json]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(service) for service in services if _selects(service, labels)))


def publish(spec: Json, labels: Mapping[str, str], services: Sequence[Json]) -> None:
    """Adds the host ports that its Services request to the containers of a pod. Changes `spec`."""
    for service in services:
        if not _selects(service, labels):
            continue
        for port in service["spec"].get("ports") or []:
            host_port = _host_port(service, port)
            if host_port is not None:
                _publish_port(spec, port, host_port)


def service_notes(documents: Sequence[Json]) -> tuple[str, ...]:
    """The differences from Kubernetes, one sentence each."""
    notes = []
    by_name = dict(_named_ports(documents))
    for service in documents:
        if service["kind"] != "Service":
            continue
        name, spec = name_of(service), service.get("spec") or {}
        for port in spec.get("ports") or []:
            asked, host_port = port.get("targetPort", port["port"]), _host_port(service, port)
            target = by_name.get(asked, asked)
            if host_port is not None:
                notes.append(f"Service {name} is published on port {host_port} of the machine.")
            elif spec.get("type") == "NodePort":
                notes.append(f"Service {name} is not published: it names no nodePort, and none is chosen here.")
            if target != port["port"]:
                notes.append(f"Service {name} has no port {port['port']} of its own here: use port {target}.")
    return tuple(notes)


def _named_ports(documents: Any) -> Iterator[tuple[Any, int]]:
    """The ports of containers that have a name, wherever in a pod's template they stand."""
    if isinstance(documents, Mapping):
        if "name" in documents and "containerPort" in documents:
            yield documents["name"], documents["containerPort"]
        documents = list(documents.values())
    if isinstance(documents, Sequence) and not isinstance(documents, str | bytes):
        for each in documents:
            yield from _named_ports(each)


def _selects(service: Json, labels: Mapping[str, str]) -> bool:
    selector = (service.get("spec") or {}).get("selector") or {}
    return bool(selector) and all(labels.get(str(key)) == str(value) for key, value in selector.items())


def _host_port(service: Json, port: Mapping[str, Any]) -> int | None:
    kind = (service.get("spec") or {}).get("type")
    if kind == "LoadBalancer":
        return int(port["port"])
    return int(port["nodePort"]) if kind == "NodePort" and port.get("nodePort") else None


def _publish_port(spec: Json, port: Mapping[str, Any], host_port: int) -> None:
    target = port.get("targetPort", port["port"])
    for container in spec["containers"]:
        for declared in container.get("ports") or []:
            if target in (declared.get("name"), declared["containerPort"]):
                declared.setdefault("hostPort", host_port)
                return
    if isinstance(target, int):
        protocol = port.get("protocol", "TCP")
        ports = spec["containers"][0].setdefault("ports", [])
        ports.append({"containerPort": target, "hostPort": host_port, "protocol": protocol})
