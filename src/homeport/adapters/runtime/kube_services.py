"""What a Service comes to without Kubernetes. Pure.

It is a DNS name of the pods that it selects; a NodePort or a LoadBalancer also publishes their ports on the machine.
There is no port of its own: who asks the name must ask the port that the container listens on, and where the two
differ, a note says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from homeport.adapters.runtime.kube_kinds import Json, name_of


def aliases_of(labels: Mapping[str, str], services: Sequence[Json]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name_of(service) for service in services if _selects(service, labels)))


def publish(spec: Json, labels: Mapping[str, str], services: Sequence[Json]) -> None:
    """Gives the containers of a pod the host ports that its Services ask for. Changes `spec`."""
    for service in services:
        if not _selects(service, labels):
            continue
        for port in service["spec"].get("ports") or []:
            host_port = _host_port(service, port)
            if host_port is not None:
                _publish_port(spec, port, host_port)


def service_notes(documents: Sequence[Json]) -> tuple[str, ...]:
    """What is different from Kubernetes, one sentence each."""
    notes = []
    for service in documents:
        if service["kind"] != "Service":
            continue
        name, spec = name_of(service), service.get("spec") or {}
        for port in spec.get("ports") or []:
            target, host_port = port.get("targetPort", port["port"]), _host_port(service, port)
            if host_port is not None:
                notes.append(f"Service {name} is published on port {host_port} of the machine.")
            elif spec.get("type") == "NodePort":
                notes.append(f"Service {name} is not published: it names no nodePort, and none is chosen here.")
            if target != port["port"]:
                notes.append(f"Service {name} is reached at port {target} instead of {port['port']}.")
    return tuple(notes)


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
