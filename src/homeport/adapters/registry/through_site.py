"""Components and charts through the site's cache; by the node itself where the site cannot help."""

from homeport.adapters.registry.oci import read_artifact
from homeport.adapters.registry.reference import parse_reference
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import FetchDirectly
from homeport.lazy_dataclass import dataclass
from homeport.ports import Artifact, ContentSource, Registry
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class RegistryThroughSite:
    """Implements `ports.Registry`."""

    content: ContentSource
    direct: Registry

    async def pull(self, repository: str, tag: str, *, user: str = "") -> Artifact:
        reference = parse_reference(repository, tag)
        if is_loopback(host_of(reference.host)):
            return await self.direct.pull(repository, tag, user=user)

        async def fetch(digest: str, size: int) -> bytes:
            content = bytearray()
            async with self.content.open(repository, Digest(digest)) as opened:
                async for chunk in opened.chunks():
                    content += chunk
                    if len(content) > size:
                        break
            return bytes(content)

        try:
            found = await self.content.manifest(repository, tag, user=user)
            return await read_artifact(found.content, reference, fetch)
        except FetchDirectly:
            return await self.direct.pull(repository, tag, user=user)

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest:
        return await self.direct.push(repository, tag, artifact)
