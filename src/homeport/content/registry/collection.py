"""Garbage collection: one repository after the other, locked against changes, then the files."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from anyio.to_thread import run_sync

from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.garbage import SeenManifest, SeenRepository, find_garbage
from homeport.content.registry.repositories import UnreadableRecord
from homeport.content.registry.service import RegistryService
from homeport.content.registry.uses import Uses
from homeport.errors import NotFound, UploadBusy
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.vocabulary import Digest

GRACE: Final = timedelta(hours=2)
"""How long unreferenced content is kept: longer than a push takes between its first blob and its manifest."""
UPLOAD_AGE_MAX: Final = timedelta(hours=24)
"""How long an idle upload can still be resumed."""

log = get_log("homeport.registry")

FindUses = Callable[[], Awaitable[Uses]]


@dataclass(frozen=True, slots=True)
class Collected:
    manifests: int
    blobs: int
    uploads: int
    freed_bytes: int


async def collect(
    registry: RegistryService, find_uses: FindUses, now: datetime, *, grace: timedelta = GRACE
) -> Collected:
    """A deployment made during the collection refers to earlier pushes: a tag, or content younger than `grace`."""
    uploads, freed = await _drop_uploads(registry, now - UPLOAD_AGE_MAX)
    used = (await find_uses()).digests
    manifests = 0
    for name in await run_sync(lambda: list(registry.repositories.names())):
        async with registry.changing:
            manifests += await _collect_repository(registry, name, used, now - grace)
    async with registry.changing:
        blobs, bytes_freed = await _drop_blobs(registry, now - grace)
    collected = Collected(manifests, blobs, uploads, freed + bytes_freed)
    if collected != Collected(0, 0, 0, 0):
        log.info(
            "registry garbage collected",
            manifests=manifests,
            blobs=blobs,
            uploads=uploads,
            bytes=collected.freed_bytes,
        )
    return collected


async def _drop_uploads(registry: RegistryService, before: datetime) -> tuple[int, int]:
    count = freed = 0
    for upload in await registry.blobs.uploads():
        if upload.at >= before:
            continue
        try:
            await registry.blobs.cancel(upload.id)
        except (NotFound, UploadBusy):
            continue
        count, freed = count + 1, freed + upload.size_bytes
    return count, freed


async def _collect_repository(
    registry: RegistryService, name: str, used: Mapping[Digest, str], before: datetime
) -> int:
    try:
        kept = {each.digest: each for each in await run_sync(registry.repositories.manifests, name)}
        tags = await run_sync(registry.repositories.tagged, name)
    except UnreadableRecord as error:
        log.warning("registry record unreadable, repository kept", name=name, why=str(error))
        return 0
    manifests = {}
    for digest, each in kept.items():
        try:
            manifests[digest] = SeenManifest(await registry.parsed(each), each.at)
        except (RegistryProblem, NotFound) as error:
            # Unreadable manifests are kept for inspection, and so is everything they may refer to.
            log.warning("registry manifest unreadable, repository kept", name=name, digest=digest, why=str(error))
            return 0
    seen = SeenRepository(
        tags=tags,
        manifests=manifests,
        blobs=dict(await run_sync(registry.repositories.blobs, name)),
    )
    garbage = find_garbage(seen, used=used, before=before)
    for digest in garbage.manifests:
        await run_sync(registry.repositories.drop_manifest, name, kept[digest])
    for digest in garbage.blobs:
        await run_sync(registry.repositories.drop_blob, name, digest)
    await run_sync(registry.repositories.tidy, name)
    return len(garbage.manifests)


async def _drop_blobs(registry: RegistryService, before: datetime) -> tuple[int, int]:
    """Files that no repository refers to."""
    named = await run_sync(registry.repositories.digests)
    count = freed = 0
    for blob in await registry.blobs.blobs():
        if blob.digest not in named and blob.at < before:
            freed += await registry.blobs.remove(blob.digest)
            count += 1
    return count, freed
