"""Content of a site that is opened after its node's engine, in the same process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from homeport.errors import FetchDirectly
from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentFile, ContentManifest, FileSource, OnBytes, OpenContent
from homeport.vocabulary import Digest


@dataclass(slots=True)
class LateContent:
    """Implements `ports.FileSource`."""

    source: FileSource | None = None

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator[OpenContent]:
        async with self._there().open(source, digest, user=user) as opened:
            yield opened

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        return await self._there().manifest(repository, reference, user=user)

    async def file(self, source: str, *, user: str = "", on_bytes: OnBytes) -> ContentFile:
        return await self._there().file(source, user=user, on_bytes=on_bytes)

    def _there(self) -> FileSource:
        if self.source is None:
            raise FetchDirectly("The site keeps no content for this node.")
        return self.source
