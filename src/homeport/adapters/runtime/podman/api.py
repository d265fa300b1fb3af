"""Podman's own listings of containers and networks.

Those that Podman has for Docker's clients inspect containers on the way, for networks all that the engine has, and
fail as a whole while one of them is half removed. Its own do not.
"""

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import anyio

from homeport.adapters.network.http_client import Address
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal, Json, ListedContainer
from homeport.adapters.runtime.podman.gpu_containers import libpod_container, names_of
from homeport.log import get_log

log = get_log("homeport.runtime")

LIBPOD: Final = "/v4.0.0/libpod"
FILE_DRIVERS: Final = ("k8s-file", "json-file")
"""Podman writes the same file for both."""
NO_DRIVER: Final = "none"
CLEAN_UP_SECONDS_MAX: Final = 5.0


class PodmanApi(EngineApi):
    def __init__(self, reach: Callable[[], Awaitable[Address]]) -> None:
        super().__init__(reach)
        self._told: set[str] = set()

    async def version(self) -> str:
        """Nodes ask often. For `/version` Podman runs its monitor, its runtime and the package manager, half a second
        of CPU in all; the answer to a ping has it too."""
        try:
            header = (await self.exchange("GET", "/_ping")).headers.get("libpod-api-version")
        except EngineRefusal:
            header = None
        return header or await super().version()

    async def create(self, name: str, content: Json) -> str:
        if not names_of(content):
            return await super().create(name, content)
        body = json.dumps(libpod_container(name, content)).encode()
        made: Json = await self.call("POST", f"{LIBPOD}/containers/create", body=body)
        return str(made["Id"])

    async def cleaned_up(self, container: str) -> None:
        """Podman calls a container stopped until its file system is unmounted, and exited afterwards. In between a
        file in it may seem not to be there."""
        with anyio.move_on_after(CLEAN_UP_SECONDS_MAX):
            while True:
                found: Json = await self.call("GET", f"{LIBPOD}/containers/{container}/json")
                if found["State"]["Status"] != "stopped":
                    return
                await anyio.sleep(0.05)

    def output_file(self, inspected: Json) -> Path | None:
        """Podman's stream leaves out lines of a container that writes much (podman issues 17286, 21914), and gives
        whole seconds; the file that its monitor writes has them all."""
        driver = inspected["HostConfig"]["LogConfig"]["Type"]
        path = Path(inspected.get("LogPath") or "")
        if driver in FILE_DRIVERS and os.access(path, os.R_OK):
            return path
        if driver != NO_DRIVER and driver not in self._told:
            self._told.add(driver)
            why = f"the log driver is {driver}" if driver not in FILE_DRIVERS else f"{path} cannot be read"
            log.warning("output is read from Podman's stream, which may leave out lines", why=why)
        return None

    async def containers(self, labels: Sequence[str]) -> list[ListedContainer]:
        query = {"all": "true", "filters": json.dumps({"label": list(labels)})}
        found = await self.known(f"{LIBPOD}/containers/json", query=query)
        return [_listed(entry) for entry in sorted(found or [], key=_created, reverse=True)]

    async def networks(self, label: str) -> list[str]:
        found = await self.known(f"{LIBPOD}/networks/json", query={"filters": json.dumps({"label": [label]})})
        return [str(network["name"]) for network in found or []]


def _listed(entry: Json) -> ListedContainer:
    return ListedContainer(
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
