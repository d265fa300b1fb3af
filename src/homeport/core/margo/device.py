"""A site as a Margo device: an opaque gateway, which shows its nodes as one device with summed-up capabilities."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from homeport.core.model.node import Capabilities, Node
from homeport.core.placement.eligibility import bytes_of
from homeport.errors import InvalidInput, Problem
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Liveness, SiteName

ARCHITECTURES: Final = frozenset({"amd64", "arm64", "arm"})
"""Those that Margo knows in capabilities; others are left out of a CPU."""
MEBI: Final = 2**20
TEXT_MAX: Final = 30
_SHARE: Final = re.compile(r"cores=(?P<cores>[0-9]+(\.[0-9]+)?)|(?P<what>memory|storage)=(?P<size>[0-9]+[MGT]i)")


@dataclass(frozen=True, slots=True)
class Share:
    """What of its nodes a site hands to the fleet manager, at most. The rest of the machines is for others."""

    cores: float = math.inf
    memory_bytes: float = math.inf
    storage_bytes: float = math.inf


ALL: Final = Share()


def share(texts: Sequence[str], field: str = "share") -> Share:
    """`cores=2`, `memory=4Gi`, `storage=100Gi`. Raises InvalidInput."""
    found: dict[str, float] = {}
    for text in texts:
        match = _SHARE.fullmatch(text) if len(text) <= TEXT_MAX else None
        amount = 0.0 if match is None else float(match["cores"] or bytes_of(match["size"]))
        if match is None or amount <= 0:
            message = f'"{text[:TEXT_MAX]}" is not a share such as cores=2, memory=4Gi or storage=100Gi'
            raise InvalidInput(problems=[Problem(field, message)])
        found[f"{match['what']}_bytes" if match["what"] else "cores"] = amount
    return Share(**found)


def capabilities_of(site: SiteName, nodes: Iterable[Node], *, version: str, share: Share = ALL) -> dict[str, Any]:
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
        "cpus": _cpus(all_of, share.cores),
        "memory": f"{int(min(sum(each.memory_bytes for each in all_of), share.memory_bytes)) // MEBI}Mi",
        "storage": f"{int(min(sum(each.disk_bytes for each in all_of), share.storage_bytes)) // MEBI}Mi",
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


def _cpus(all_of: Sequence[Capabilities], cores_max: float) -> list[dict[str, Any]]:
    """One of each node, until the share is used up."""
    found, left = [], cores_max
    for each in all_of:
        if (cores := min(each.cpu_cores, left)) > 0:
            found.append(_cpu(int(cores) if cores == int(cores) else cores, each.architecture))
            left -= cores
    return found


def _cpu(cores: float, architecture: str) -> dict[str, Any]:
    return {"cores": cores, **({"architecture": architecture} if architecture in ARCHITECTURES else {})}


def _common_labels(nodes: list[Node]) -> dict[str, str]:
    """Labels that every node has, with the same value: an app may be placed on any of them."""
    first, *others = [dict(node.labels) for node in nodes]
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}
