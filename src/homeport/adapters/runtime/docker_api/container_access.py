"""Looking into the containers of a deployment through the engine's API: commands, and connections to their ports."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal, Json, ListedContainer
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.exec_session import EngineExec, open_exec
from homeport.core.tunnel.choosing import RunningContainer
from homeport.core.tunnel.targets import Endpoint, ExecTarget
from homeport.errors import NotFound, Refused

LOOPBACK: Final = "127.0.0.1"
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
SHARED: Final = "container:"
"""The network mode of a container in another one's network, as in a pod."""


class ContainerAccess:
    def __init__(self, engine: ContainerEngine, api: EngineApi) -> None:
        self._engine = engine
        self._api = api

    async def describe(
        self, listed: Sequence[ListedContainer], *, component: str, service: str
    ) -> Sequence[RunningContainer]:
        """The running ones; `component` and `service` are the labels that name those."""
        found = []
        for each in listed:
            if not each.running or each.name.endswith("-infra"):
                continue
            inspected = await self._network_of(each.id)
            found.append(
                RunningContainer(
                    each.id,
                    each.name,
                    each.labels.get(component, ""),
                    each.labels.get(service, ""),
                    frozenset() if inspected is None else _ports(inspected),
                )
            )
        return found

    def execute_in(self, container_id: str, target: ExecTarget) -> AbstractAsyncContextManager[EngineExec]:
        return open_exec(self._api, self._engine.reach, container_id, target)

    async def address_of(self, container_id: str, port: int) -> Endpoint:
        """A published port first: that also works where containers have addresses of their own network only
        (rootless)."""
        inspected = await self._network_of(container_id)
        if inspected is None:
            raise NotFound("The container is gone.", hint="Try again: it may have been replaced.")
        if inspected["HostConfig"].get("NetworkMode") == "host":
            return Endpoint(LOOPBACK, port)
        network: dict[str, Any] = inspected.get("NetworkSettings") or {}
        for binding in (network.get("Ports") or {}).get(f"{port}/tcp") or ():
            host = str(binding.get("HostIp") or "")
            return Endpoint(LOOPBACK if host in ANY_ADDRESS else host, int(binding["HostPort"]))
        networks = [network, *(network.get("Networks") or {}).values()]
        addresses = [str(each["IPAddress"]) for each in networks if each.get("IPAddress")]
        if not addresses:
            raise Refused(
                f"Port {port} is not published, and the container has no address that its node reaches.",
                hint="Publish the port in the app's description.",
            )
        return Endpoint(addresses[0], port)

    async def _network_of(self, container_id: str) -> Json | None:
        """What the engine says of the container whose network it uses."""
        try:
            inspected = await self._api.inspect(container_id)
            mode = str(inspected["HostConfig"].get("NetworkMode") or "")
            return await self._api.inspect(mode.removeprefix(SHARED)) if mode.startswith(SHARED) else inspected
        except EngineRefusal:
            return None


def _ports(inspected: Json) -> frozenset[int]:
    exposed = inspected["Config"].get("ExposedPorts") or {}
    published = (inspected.get("NetworkSettings") or {}).get("Ports") or {}
    return frozenset(int(each.partition("/")[0]) for each in (*exposed, *published) if each.endswith("/tcp"))
