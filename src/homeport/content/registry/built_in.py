"""The registry as a part of central: its folder, its address, and its periodic work."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio

from homeport.adapters.blobs.disk import DiskBlobs
from homeport.adapters.registry.oci import EMPTY_CONFIG, MANIFEST_TYPE, render_manifest
from homeport.content.registry.collection import collect
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.metrics import RegistryMetrics
from homeport.content.registry.names import TagPolicy
from homeport.content.registry.repositories import Repositories
from homeport.content.registry.service import RegistryService
from homeport.content.registry.uses import UsesOfDeployments
from homeport.core.model.artifact import Artifact
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import Conflict
from homeport.fleet.shared.periodic import every
from homeport.lazy_dataclass import dataclass
from homeport.ports import BlobUsage, Clock, RegistryAddress, Store

COLLECT_SECONDS: Final = 3600.0
FIRST_SECONDS: Final = 300.0
"""Delay of the first garbage collection, so that it does not slow down the start."""
COLLECT_SECONDS_MAX: Final = 1800.0
"""Time limit of one collection; the next continues with the rest."""


@dataclass(slots=True)
class CentralRegistry:
    """Implements `ports.BuiltInRegistry`."""

    clock: Clock
    service: RegistryService
    metrics: RegistryMetrics
    uses: UsesOfDeployments
    address: RegistryAddress | None = None
    is_wanted: bool = False
    why_off: str = "Central was started without one. Start it with  --registry HOST:PORT ."

    async def usage(self) -> BlobUsage:
        return await self.service.blobs.usage()

    async def push(self, name: str, tag: str, artifact: Artifact) -> None:
        try:
            for content in (EMPTY_CONFIG, *(layer.content for layer in artifact.layers)):
                upload = await self.service.begin(name)
                await self.service.append(name, upload, 0, _whole(content))
                await self.service.finish(name, upload, digest_of_bytes(content))
            await self.service.put_manifest(name, tag, render_manifest(artifact), MANIFEST_TYPE)
        except RegistryProblem as error:
            raise Conflict(f"The registry does not take {name}:{tag}: {error}") from error

    async def keep(self) -> None:
        await anyio.sleep(FIRST_SECONDS)
        await every("registry", COLLECT_SECONDS, self._collect, limit_seconds=COLLECT_SECONDS_MAX)

    async def _collect(self) -> None:
        if self.address is None:
            return
        collected = await collect(self.service, self.uses.find, self.clock.now())
        self.service.traffic.collected += collected.freed_bytes

    async def used_by(self, name: str, reference: str) -> str | None:
        return (await self.uses.find()).of(name, reference)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def open_registry(
    folder: Path, store: Store, clock: Clock, *, quota_bytes: int, policy: TagPolicy
) -> CentralRegistry:
    """Nothing is read or written before the first request."""
    blobs = DiskBlobs(folder, quota_bytes=quota_bytes)
    service = RegistryService(blobs, Repositories(folder / "repositories"), policy)
    metrics = RegistryMetrics(service.traffic, blobs.usage_now)
    registry = CentralRegistry(clock, service, metrics, UsesOfDeployments(store, service))
    service.used_by = registry.used_by
    return registry
