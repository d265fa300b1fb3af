"""The cache as a node gets it: with a word on whether the node may try by itself where the site failed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from homeport.adapters.registry.reference import parse_reference
from homeport.content.cache.decisions import may_fetch_directly
from homeport.core.inference.models.references import Scheme
from homeport.core.inference.models.references import parse_reference as parse_model
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import FetchDirectly, HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.ports import ContentCache, ContentFile, ContentManifest, OnBytes, OpenContent
from homeport.vocabulary import Digest


@dataclass(frozen=True, slots=True)
class NodeContent:
    """Implements `ports.FileSource`."""

    cache: ContentCache

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        _refuse_this_machine(repository)
        try:
            return await self.cache.manifest(repository, reference, user=user)
        except HomeportError as error:
            raise await self._told(repository, error) from error

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator[OpenContent]:
        _refuse_this_machine(source)
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(self.cache.open(source, digest, user=user))
            except HomeportError as error:
                raise await self._told(source, error) from error
            yield opened

    async def file(self, source: str, *, user: str = "", on_bytes: OnBytes) -> ContentFile:
        _refuse_this_machine(source)
        try:
            return await self.cache.file(source, user=user, on_bytes=on_bytes)
        except HomeportError as error:
            raise await self._told(source, error) from error

    async def _told(self, source: str, error: HomeportError) -> HomeportError:
        if may_fetch_directly(error, is_known_host=await self.cache.knows(source)):
            return FetchDirectly(str(error), hint=error.hint)
        return error


def _refuse_this_machine(source: str) -> None:
    """A node that names loopback means itself; here it would reach what only this machine may."""
    if source.startswith("oci://"):
        host = host_of(parse_reference(source, "latest").host)
    else:
        model = parse_model(source, field="source")
        host = host_of(model.place.partition("://")[2]) if model.scheme is Scheme.HTTPS else ""
        if model.scheme is Scheme.FILE:
            raise FetchDirectly("A file of a machine is the machine's own.")
    if is_loopback(host):
        raise FetchDirectly("An address on loopback is the machine's own.")
