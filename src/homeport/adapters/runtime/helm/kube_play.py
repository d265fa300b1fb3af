"""Podman's own routes for pods: play a manifest, start, remove; and their network and volumes."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from homeport.adapters.runtime.docker_api.client import CALL_SECONDS, STOP_SECONDS, EngineApi, EngineRefusal
from homeport.adapters.runtime.helm.kube_pods import KubePod
from homeport.adapters.runtime.podman.api import LIBPOD
from homeport.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PodSeen:
    id: str
    name: str
    labels: Mapping[str, str]


class KubePlay:
    def __init__(self, api: EngineApi) -> None:
        self._api = api

    async def pods(self, labels: Sequence[str]) -> list[PodSeen]:
        filters = json.dumps({"label": list(labels)})
        found = await self._api.known(f"{LIBPOD}/pods/json", query={"filters": filters})
        return [PodSeen(each["Id"], each["Name"], each.get("Labels") or {}) for each in found or []]

    async def play(self, pod: KubePod, network: str, *, seconds: float) -> None:
        """Raises Refusal with the engine's reason, also for a container that does not start."""
        query = {}
        if not pod.on_host_network:
            query["network"] = f"{network}:{','.join(f'alias={alias}' for alias in pod.aliases)}".rstrip(":")
        answer = await self._api.call("POST", f"{LIBPOD}/play/kube", query=query, body=pod.manifest, seconds=seconds)
        errors = [error for each in answer.get("Pods") or [] for error in each.get("ContainerErrors") or []]
        if errors:
            raise EngineRefusal(500, str(errors[0]))

    async def start(self, pod: str) -> None:
        """Running containers stay unchanged. Raises Refusal when one does not start."""
        answer = await self._api.call("POST", f"{LIBPOD}/pods/{pod}/start")
        errors = (answer or {}).get("Errs") or []
        if errors:
            raise EngineRefusal(500, str(errors[0]))

    async def remove(self, pod: str) -> None:
        """With its containers, after a graceful stop."""
        seconds = STOP_SECONDS + CALL_SECONDS
        with contextlib.suppress(EngineRefusal):  # the removal, which is forced, reports any problem
            query = {"t": str(STOP_SECONDS)}
            await self._api.call("POST", f"{LIBPOD}/pods/{pod}/stop", query=query, seconds=seconds)
        await self._unless_gone("DELETE", f"{LIBPOD}/pods/{pod}", {"force": "true"}, seconds=seconds)

    async def ensure_network(self, name: str, labels: Mapping[str, str]) -> None:
        body = json.dumps({"name": name, "dns_enabled": True, "labels": dict(labels)}).encode()
        try:
            await self._api.call("POST", f"{LIBPOD}/networks/create", body=body)
        except EngineRefusal as refusal:
            if refusal.status != 409 and "already exists" not in refusal.message:
                raise

    async def remove_network_unused(self, name: str) -> None:
        """Another component of the deployment may still use it; it is removed with the last one."""
        try:
            await self._api.call("DELETE", f"{LIBPOD}/networks/{name}")
        except EngineRefusal:
            return

    async def remove_volumes(self, begins: str) -> None:
        found = await self._api.known(f"{LIBPOD}/volumes/json")
        for volume in found or []:
            if str(volume["Name"]).startswith(begins):
                await self._unless_gone("DELETE", f"{LIBPOD}/volumes/{volume['Name']}", {"force": "true"})

    async def _unless_gone(
        self, method: str, path: str, query: Mapping[str, str], *, seconds: float = CALL_SECONDS
    ) -> Any:
        try:
            return await self._api.call(method, path, query=query, seconds=seconds)
        except EngineRefusal as refusal:
            if refusal.status != 404:
                raise
            return None
