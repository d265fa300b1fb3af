"""The cache of a site: what it has, what it fetches, and what it gives up for that."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.blobs.disk import DiskBlobs, shown_bytes
from homeport.adapters.registry.reference import nested_name, parse_reference
from homeport.content.cache.decisions import choose_evictions, may_serve_known, with_dependencies
from homeport.content.cache.files import Files
from homeport.content.cache.joined import SingleFlight
from homeport.content.cache.transfers import Stored, Transfers
from homeport.content.cache.uses import USER_LENGTH_MAX, Used, Users
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.manifests import MANIFEST_BYTES_MAX, OciManifest, parse_manifest
from homeport.content.registry.names import check_digest
from homeport.content.registry.repositories import Repositories
from homeport.core.inference.models.references import WEB_SCHEMES
from homeport.core.inference.models.references import parse_reference as parse_model
from homeport.errors import HomeportError, InvalidInput, NotFound, PeerUnavailable, QuotaExceeded, UploadBusy
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import (
    BlobStore,
    CacheCounters,
    CacheUsage,
    Clock,
    ContentFile,
    ContentManifest,
    LiveUsers,
    OnBytes,
    OpenContent,
    Upstream,
)
from homeport.vocabulary import Digest

PARTIAL_AGE_MAX: Final = timedelta(days=1)
"""How long a download without readers can still be resumed."""
LOOK_UP_SECONDS: Final = 5.0
"""How long a registry may take to say whether a known tag has moved."""
FIRST_TIDY_SECONDS: Final = 60.0
TIDY_SECONDS: Final = 3600.0

log = get_log("homeport.cache")


@dataclass(slots=True)
class Cache:
    """Implements `ports.ContentCache`."""

    blobs: BlobStore
    repositories: Repositories
    users: Users
    files: Files
    upstream: Upstream
    clock: Clock
    size_max_bytes: int
    evicted_bytes: int = 0
    hits: int = 0
    misses: int = 0
    transfers: Transfers = field(init=False)
    _live: list[LiveUsers] = field(default_factory=list)
    _evicting: anyio.Lock = field(default_factory=anyio.Lock)
    _lookups: SingleFlight[ContentManifest] = field(default_factory=SingleFlight)

    def __post_init__(self) -> None:
        self.transfers = Transfers(self.blobs, self.upstream, self._make_room, self.files, self.size_max_bytes)

    # --- what others ask for ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, source: str, digest: Digest, *, user: str = "") -> AsyncIterator[OpenContent]:
        _check(digest)
        await self._note(user, source, digest)
        async with AsyncExitStack() as stack:
            content: OpenContent | None = await self._stored(digest, stack)
            if content is None:
                self.misses += 1
                content = await stack.enter_async_context(self.transfers.read(source, digest))
            yield content

    async def _stored(self, digest: Digest, stack: AsyncExitStack) -> Stored | None:
        try:
            opened = await stack.enter_async_context(self.blobs.open(digest))
        except NotFound:
            return None
        self.hits += 1
        await self.blobs.touch(digest)
        return Stored(opened, digest)

    async def ensure(self, source: str, digest: Digest, *, user: str = "", on_bytes: OnBytes | None = None) -> int:
        async with self.open(source, digest, user=user) as content:
            if content.file is None:
                done = 0
                async for chunk in content.chunks():
                    done += len(chunk)
                    if on_bytes is not None:
                        on_bytes(done, content.size_bytes)
            return content.size_bytes

    async def manifest(self, repository: str, reference: str, *, user: str = "") -> ContentManifest:
        found = await self._lookups.once(
            f"{repository} {reference}", lambda: self._find_manifest(repository, reference)
        )
        await self.blobs.touch(found.digest)
        await self._note(user, repository, found.digest)
        return found

    async def file(self, source: str, *, user: str = "", on_bytes: OnBytes) -> ContentFile:
        reference = parse_model(source, field="source")
        if reference.scheme not in WEB_SCHEMES:
            raise InvalidInput(f"{source[:200]} is not a file of the web.")
        kept = await run_sync(self.files.find, reference.text)
        if kept is None or kept.digest is None or await self.blobs.size(kept.digest) is None:
            self.misses += 1
            kept = await self.transfers.whole_file(reference.text, on_bytes)
        else:
            self.hits += 1
        assert kept.digest is not None, "the whole file has one"
        await self.blobs.touch(kept.digest)
        await self._note(user, source, kept.digest)
        return ContentFile(kept.name, kept.digest, kept.size_bytes)

    def protect(self, live_users: LiveUsers) -> None:
        self._live.append(live_users)

    async def usage(self) -> CacheUsage:
        usage, blobs = await self.blobs.usage(), await self.blobs.blobs()
        protected = await self._protected()
        return CacheUsage(
            stored_bytes=usage.blob_bytes + usage.upload_bytes,
            size_max_bytes=self.size_max_bytes,
            protected_bytes=sum(each.size_bytes for each in blobs if each.digest in protected),
            blobs=len(blobs),
            transfers=len(self.transfers.open),
        )

    async def knows(self, repository: str) -> bool:
        if not repository.startswith("oci://"):
            return await run_sync(self.files.find, repository) is not None
        folder = self.repositories.root / _folder(repository).partition("/")[0]
        return await run_sync(folder.is_dir)

    @property
    def counters(self) -> CacheCounters:
        return CacheCounters(
            self.hits, self.misses, self.transfers.fetched_bytes, self.evicted_bytes, self.transfers.failed
        )

    # --- loops ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.transfers.run)
            tasks.start_soon(self._keep)

    async def _keep(self) -> None:
        """Removes abandoned downloads and forgotten users from time to time."""
        await anyio.sleep(FIRST_TIDY_SECONDS)
        while True:
            try:
                await self.tidy()
            except (HomeportError, OSError) as error:
                log.warning("cache not tidied", why=str(error))
            await anyio.sleep(TIDY_SECONDS)

    async def tidy(self) -> None:
        await self._drop_partial(PARTIAL_AGE_MAX)
        live = await self._live_users()
        if self._live:
            await run_sync(self.users.forget_others, live)

    # --- manifests --------------------------------------------------------------------------------------------

    async def _find_manifest(self, repository: str, reference: str) -> ContentManifest:
        parse_reference(repository, reference)
        name = _folder(repository)
        is_digest = ":" in reference
        digest = Digest(reference) if is_digest else await run_sync(self.repositories.tag, name, reference)
        known = None if digest is None else await self._stored_manifest(name, digest)
        if known is not None and is_digest:
            self.hits += 1
            return known
        try:
            fetched = await self._fetch_manifest(repository, reference, known)
        except HomeportError as error:
            if known is None or not may_serve_known(error):
                raise
            log.warning("registry not available, cached manifest served", reference=reference, why=str(error))
            self.hits += 1
            return known
        if fetched is None:
            assert known is not None, "nothing is unchanged where nothing was known"
            self.hits += 1
            return known
        self.misses += 1
        await self._store_manifest(name, None if is_digest else reference, fetched)
        return fetched

    async def _fetch_manifest(
        self, repository: str, reference: str, known: ContentManifest | None
    ) -> ContentManifest | None:
        """None where it is still the known one. A registry that is silent is not waited for where one is known."""
        if known is None:
            return await self.upstream.manifest(repository, reference, known=None)
        try:
            with anyio.fail_after(LOOK_UP_SECONDS):
                return await self.upstream.manifest(repository, reference, known=known.digest)
        except TimeoutError as error:
            raise PeerUnavailable(f"{repository} did not answer within {LOOK_UP_SECONDS:.0f} s.") from error

    async def _stored_manifest(self, name: str, digest: Digest) -> ContentManifest | None:
        kept = await run_sync(self.repositories.manifest, name, digest)
        if kept is None:
            return None
        try:
            async with self.blobs.open(digest) as opened:
                content = await run_sync(opened.file.read, MANIFEST_BYTES_MAX)
        except NotFound:
            return None
        return ContentManifest(digest, kept.media_type, content)

    async def _store_manifest(self, name: str, tag: str | None, found: ContentManifest) -> None:
        await self._make_room(len(found.content))
        await self.blobs.put(found.content)
        await run_sync(self.repositories.add_manifest, name, found.digest, found.media_type, None, {})
        if tag is not None:
            await run_sync(self.repositories.put_tag, name, tag, found.digest)

    # --- space ------------------------------------------------------------------------------------------------

    async def _note(self, user: str, source: str, digest: Digest) -> None:
        if user:
            name = _folder(source) if source.startswith("oci://") else ""
            await run_sync(self.users.note, user[:USER_LENGTH_MAX], Used(name, digest))

    async def _live_users(self) -> set[str]:
        return {user for live in self._live for user in await live()}

    async def _protected(self) -> frozenset[Digest]:
        """What live users need: what they asked for, and all that its manifests refer to."""
        used = await run_sync(self.users.of, await self._live_users())
        manifests: dict[Digest, OciManifest] = {}
        open_ends = [(each.repository, each.digest) for each in used if each.repository]
        while open_ends:
            name, digest = open_ends.pop()
            stored = None if digest in manifests else await self._stored_manifest(name, digest)
            if stored is None:
                continue
            try:
                manifests[digest] = parse_manifest(stored.content, stored.media_type)
            except RegistryProblem:
                continue
            open_ends += [(name, below) for below in manifests[digest].manifests]
        return with_dependencies({each.digest for each in used}, manifests)

    async def _make_room(self, needed_bytes: int) -> None:
        async with self._evicting:
            if needed_bytes <= await self._free_bytes():
                return
            await self._drop_partial(timedelta(0))
            chosen = choose_evictions(
                await self.blobs.blobs(),
                protected=await self._protected(),
                needed_bytes=needed_bytes,
                free_bytes=await self._free_bytes(),
            )
            if not chosen.is_enough:
                raise QuotaExceeded(
                    f"The cache of {shown_bytes(self.size_max_bytes)} is full of what is deployed here, and has no "
                    f"room for {shown_bytes(needed_bytes)} more.",
                    hint="Give the site a larger one with  --cache-size .",
                )
            for digest in chosen.digests:
                self.evicted_bytes += await self.blobs.remove(digest)
            if chosen.digests:
                log.info("cached content evicted", blobs=len(chosen.digests), bytes=chosen.freed_bytes)

    async def _free_bytes(self) -> int:
        """Without what downloads under way will still take."""
        return (await self.blobs.usage()).free_bytes - self.transfers.missing_bytes

    async def _drop_partial(self, age: timedelta) -> None:
        """Downloads without readers. One that is under way is claimed, and stays."""
        active = {each.upload_id for each in self.transfers.open.values()}
        for upload in await self.blobs.uploads():
            if upload.id in active or self.clock.now() - upload.at < age:
                continue
            try:
                await self.blobs.cancel(upload.id)
            except (NotFound, UploadBusy):
                continue


def open_cache(folder: Path, upstream: Upstream, clock: Clock, *, size_max_bytes: int) -> Cache:
    """Nothing is read or written before the first request."""
    return Cache(
        DiskBlobs(folder, quota_bytes=size_max_bytes),
        Repositories(folder / "repositories"),
        Users(folder / "users"),
        Files(folder / "files"),
        upstream,
        clock,
        size_max_bytes,
    )


def _check(digest: Digest) -> None:
    try:
        check_digest(digest)
    except RegistryProblem as problem:
        raise InvalidInput(str(problem)) from problem


def _folder(repository: str) -> str:
    """The repository with its host as a name in `Repositories`."""
    return nested_name(repository.removeprefix("oci://"))
