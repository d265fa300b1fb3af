"""A site as a Margo device: an opaque gateway, which shows its nodes as one device with summed-up capabilities."""

from collections.abc import Iterable
from typing import Any, Final

from homeport.core.model.node import Node
from homeport.vocabulary import Liveness, SiteName

ARCHITECTURES: Final = frozenset({"amd64", "arm64", "arm"})
"""Those that Margo knows in capabilities; others are left out of a CPU."""
MEBI: Final = 2**20


def capabilities_of(site: SiteName, nodes: Iterable[Node], *, version: str) -> dict[str, Any]:
    """The body of the capabilities report. Without a node the site hosts nothing, and says so by leaving out every
    field of a hosting device."""
    present = sorted((node for node in nodes if node.liveness is not Liveness.LOST), key=lambda node: node.id)
    body: dict[str, Any] = {
        "properties": {"id": site, "vendor": "Homeport", "modelNumber": version or "site", "serialNumber": site}
    }
    types = sorted({kind.value for node in present for kind in node.info.capabilities.profile_types})
    if not types:
        return body
    all_of = [node.info.capabilities for node in present]
    body["properties"] |= {
        "cpus": [_cpu(each.cpu_cores, each.architecture) for each in all_of],
        "memory": f"{sum(each.memory_bytes for each in all_of) // MEBI}Mi",
        "storage": f"{sum(each.disk_bytes for each in all_of) // MEBI}Mi",
        "peripherals": [
            {"type": "gpu", "manufacturer": gpu.manufacturer, "model": gpu.model}
            for each in all_of
            for gpu in each.gpus
        ],
        "interfaces": [{"type": "ethernet"}],
        "otelCollector": True,
        "supportedRuntimes": ["oci", *(["custom"] if "custom" in types else [])],
        "supportedDeploymentTypes": types,
    }
    labels = _common_labels(present)
    return {**body, "labels": labels} if labels else body


def _cpu(cores: int, architecture: str) -> dict[str, Any]:
    return {"cores": cores, **({"architecture": architecture} if architecture in ARCHITECTURES else {})}


def _common_labels(nodes: list[Node]) -> dict[str, str]:
    """Labels that every node has, with the same value: an app may be placed on any of them."""
    first, *others = [dict(node.labels) for node in nodes]
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}
