"""Podman's own listings of containers and networks.

Those that Podman has for Docker's clients inspect containers on the way, for networks all that the engine has, and
fail as a whole while one of them is half removed. Its own do not.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from homeport.adapters.runtime.docker_api.client import EngineApi, Json, Listed

LIBPOD: Final = "/v4.0.0/libpod"


class PodmanApi(EngineApi):
    async def containers(self, labels: Sequence[str]) -> list[Listed]:
        query = {"all": "true", "filters": json.dumps({"label": list(labels)})}
        found = await self.known(f"{LIBPOD}/containers/json", query=query)
        return [_listed(entry) for entry in sorted(found or [], key=_created, reverse=True)]

    async def networks(self, label: str) -> list[str]:
        found = await self.known(f"{LIBPOD}/networks/json", query={"filters": json.dumps({"label": [label]})})
        return [str(network["name"]) for network in found or []]


def _listed(entry: Json) -> Listed:
    return Listed(
        id=entry["Id"],
        name=entry["Names"][0],
        image=entry["Image"],
        running=entry["State"] == "running",
        labels=entry.get("Labels") or {},
        ports=frozenset(port for each in entry.get("Ports") or () for port in _host_ports(each)),
    )


def _created(entry: Json) -> datetime:
    return datetime.fromisoformat(entry["Created"])


def _host_ports(mapping: Json) -> range:
    """Neighbouring ports are one entry."""
    first: Any = mapping.get("host_port") or 0
    return range(first, first + (mapping.get("range") or 1)) if first else range(0)
