"""The registry without HTTP: storing and finding blobs, manifests that are complete or refused, and immutable
tags.

Metadata changes are serialised with garbage collection: nothing changes while it decides.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import field
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync

from homeport.content.registry.errors import RegistryProblem, SpecCode
from homeport.content.registry.manifests import MANIFEST_BYTES_MAX, OciManifest, parse_manifest
from homeport.content.registry.metrics import Traffic
from homeport.content.registry.names import (
    TagPolicy,
    check_digest,
    check_name,
    check_tag,
    is_digest,
    is_immutable,
)
from homeport.content.registry.ranges import received
from homeport.content.registry.repositories import Repositories, StoredManifest
from homeport.errors import DigestMismatch, NotFound, OffsetMismatch, UploadBusy
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import BlobStore, OpenBlob, Upload, UploadId
from homeport.vocabulary import Digest

UPLOADS_MAX: Final = 1_000
"""Unfinished ones: each is a file that stays for a day, or until others need the room."""

log = get_log(__name__)

UsedBy = Callable[[str, str], Awaitable[str | None]]
"""Called before a manual deletion, with a repository and a tag or digest: the deployment that needs it."""


async def not_in_use(name: str, reference: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Pulled:
    digest: Digest
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PushedManifest:
    digest: Digest
    subject: Digest | None


@dataclass(slots=True)
class RegistryService:
    blobs: BlobStore
    repositories: Repositories
    policy: TagPolicy = TagPolicy.VERSIONS
    used_by: UsedBy = not_in_use
    changing: anyio.Lock = field(default_factory=anyio.Lock)
    traffic: Traffic = field(default_factory=Traffic)
    _beginning: anyio.Lock = field(default_factory=anyio.Lock)
    _unfinished: int | None = None
    """Uploads, at least; None until they were counted."""

    # --- blobs ------------------------------------------------------------------------------------------------

    async def blob_size(self, name: str, digest: Digest) -> int:
        check_name(name)
        is_here = await run_sync(self.repositories.has_blob, name, digest)
        size = await self.blobs.size(digest) if is_here else None
        if size is None:
            raise await self._unknown(name, SpecCode.BLOB_UNKNOWN, f"{name} has no blob {digest}.")
        return size

    @asynccontextmanager
    async def open_blob(self, name: str, digest: Digest) -> AsyncIterator[OpenBlob]:
        await self.blob_size(name, digest)
        try:
            async with self.blobs.open(digest) as opened:
                yield opened
        except NotFound as error:
            raise RegistryProblem(SpecCode.BLOB_UNKNOWN, f"{name} has no blob {digest}.") from error

    async def mount(self, name: str, digest: Digest, source: str | None) -> bool:
        """Whether the blob of another repository now belongs to this one, too. Without a source any repository will
        do: callers who may push may read them all."""
        check_name(name)
        if source is not None:
            check_name(source)
            if not await run_sync(self.repositories.has_blob, source, digest):
                return False
        return await self._add_blob(name, digest)

    async def begin(self, name: str) -> UploadId:
        check_name(name)
        async with self._beginning:
            if self._unfinished is None or self._unfinished >= UPLOADS_MAX:
                self._unfinished = await self._make_room()
            self._unfinished += 1
            return await self.blobs.begin()

    async def _make_room(self) -> int:
        """How many uploads are not finished, after those that got no data for longest have made room: a client that
        begins them in a loop keeps nobody else from pushing. Empty ones go first, and a tenth of all at once, so that
        they are seldom listed."""
        uploads = sorted(await self.blobs.uploads(), key=lambda each: (each.size_bytes > 0, each.at))
        left = len(uploads)
        if left < UPLOADS_MAX:
            return left
        enough = UPLOADS_MAX - max(1, UPLOADS_MAX // 10)
        for upload in uploads:
            if left <= enough:
                break
            with suppress(NotFound, UploadBusy):
                await self.blobs.cancel(upload.id)
                left -= 1
        if left >= UPLOADS_MAX:
            message = f"{UPLOADS_MAX} uploads are under way. Try again when some of them are finished."
            raise RegistryProblem(SpecCode.TOOMANYREQUESTS, message)
        log.warning("unfinished uploads discarded for new ones", count=len(uploads) - left, limit=UPLOADS_MAX)
        return left

    def _ended(self) -> None:
        """An upload of a client; of one that is dropped otherwise the next count knows."""
        if self._unfinished:
            self._unfinished -= 1

    async def upload(self, name: str, upload_id: UploadId) -> Upload:
        check_name(name)
        with _upload_problems():
            return await self.blobs.upload(upload_id)

    async def append(
        self, name: str, upload_id: UploadId, offset: int | None, chunks: AsyncIterator[bytes]
    ) -> Upload:
        seen = await self.upload(name, upload_id)
        with _upload_problems():
            grown = await self.blobs.append(upload_id, seen.size_bytes if offset is None else offset, chunks)
        self.traffic.pushed += grown.size_bytes - seen.size_bytes
        return grown

    async def finish(self, name: str, upload_id: UploadId, digest: Digest) -> None:
        check_name(name)
        with _upload_problems():
            await self.blobs.finish(upload_id, digest)
        self._ended()
        await self._add_blob(name, digest)

    async def cancel(self, name: str, upload_id: UploadId) -> None:
        check_name(name)
        with _upload_problems():
            await self.blobs.cancel(upload_id)
        self._ended()

    async def delete_blob(self, name: str, digest: Digest) -> None:
        """From this repository; others keep theirs, and the disk space is freed by the next collection."""
        async with self.changing:
            await self.blob_size(name, digest)
            for kept in await run_sync(self.repositories.manifests, name):
                if digest in (await self.parsed(kept)).blobs:
                    raise RegistryProblem(
                        SpecCode.DENIED,
                        f"The manifest {kept.digest} of {name} needs this blob; delete that manifest first.",
                        status=409,
                    )
            await run_sync(self.repositories.drop_blob, name, digest)

    async def _add_blob(self, name: str, digest: Digest) -> bool:
        """Whether it exists; a garbage collection may have been faster."""
        async with self.changing:
            if await self.blobs.size(digest) is None:
                return False
            await run_sync(self.repositories.add_blob, name, digest)
            return True

    # --- manifests and tags -----------------------------------------------------------------------------------

    async def manifest(self, name: str, reference: str) -> Pulled:
        kept = await self._kept(name, reference)
        try:
            async with self.blobs.open(kept.digest) as opened:
                content = await run_sync(opened.file.read, MANIFEST_BYTES_MAX)
        except NotFound as error:
            raise RegistryProblem(SpecCode.MANIFEST_UNKNOWN, f"{name} has no manifest {reference}.") from error
        return Pulled(kept.digest, kept.media_type, content)

    async def put_manifest(self, name: str, reference: str, content: bytes, content_type: str) -> PushedManifest:
        check_name(name)
        promised = check_digest(reference) if is_digest(reference) else None
        tag = None if promised is not None else check_tag(reference)
        manifest = parse_manifest(content, content_type)
        algorithm = "sha256" if promised is None else promised.partition(":")[0]
        digest = Digest(f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}")
        if promised is not None and digest != promised:
            raise RegistryProblem(
                SpecCode.DIGEST_INVALID, f"The manifest that was sent has the digest {digest}, not {promised}."
            )
        async with self.changing:
            if tag is not None:
                await self._refuse_other_content(name, tag, digest)
            await self._refuse_incomplete(name, manifest)
            await self.blobs.put(content, algorithm=algorithm)
            descriptor = _descriptor(manifest, digest, len(content))
            await run_sync(
                self.repositories.add_manifest, name, digest, manifest.media_type, manifest.subject, descriptor
            )
            if tag is not None:
                await run_sync(self.repositories.put_tag, name, tag, digest)
        return PushedManifest(digest, manifest.subject)

    async def delete_manifest(self, name: str, reference: str) -> None:
        """A tag alone, or a manifest with all its tags."""
        async with self.changing:
            kept = await self._kept(name, reference)
            tagged = await run_sync(self.repositories.tagged, name)
            tags = [tag for tag, digest in tagged.items() if digest == kept.digest]
            for each in [reference] if reference in tags else [kept.digest, *tags]:
                user = await self.used_by(name, each)
                if user is not None:
                    raise RegistryProblem(
                        SpecCode.DENIED,
                        f"{name}:{each} is used by the deployment {user} or by a release that it can go back to; "
                        "delete the deployment first.",
                        status=409,
                    )
            if is_digest(reference):
                for tag in tags:
                    await run_sync(self.repositories.drop_tag, name, tag)
                await run_sync(self.repositories.drop_manifest, name, kept)
            else:
                await run_sync(self.repositories.drop_tag, name, reference)
            await run_sync(self.repositories.tidy, name)

    async def names(self) -> Sequence[str]:
        """Every repository with content, in lexical order."""
        return sorted(await run_sync(lambda: list(self.repositories.names())), key=lexical)

    async def tags(self, name: str) -> Sequence[str]:
        """In case-insensitive lexical order, as the specification requires."""
        check_name(name)
        found = await run_sync(self.repositories.tags, name)
        if not found and not await run_sync(self.repositories.exists, name):
            raise RegistryProblem(SpecCode.NAME_UNKNOWN, f"There is no repository {name}.")
        return sorted(found, key=lexical)

    async def referrers(self, name: str, subject: Digest) -> Sequence[Mapping[str, Any]]:
        check_name(name)
        return await run_sync(self.repositories.referrers, name, subject)

    async def _kept(self, name: str, reference: str) -> StoredManifest:
        check_name(name)
        unknown = f"{name} has no manifest {reference[:200]}."
        digest = check_digest(reference) if is_digest(reference) else None
        if digest is None:
            try:
                digest = await run_sync(self.repositories.tag, name, check_tag(reference))
            except RegistryProblem as problem:
                raise RegistryProblem(SpecCode.MANIFEST_UNKNOWN, unknown) from problem
        kept = None if digest is None else await run_sync(self.repositories.manifest, name, digest)
        if kept is None:
            raise await self._unknown(name, SpecCode.MANIFEST_UNKNOWN, unknown)
        return kept

    async def parsed(self, kept: StoredManifest) -> OciManifest:
        """Raises NotFound and RegistryProblem where it is missing or damaged on disk."""
        async with self.blobs.open(kept.digest) as opened:
            content = await run_sync(opened.file.read, MANIFEST_BYTES_MAX)
        return parse_manifest(content, kept.media_type)

    async def _refuse_other_content(self, name: str, tag: str, digest: Digest) -> None:
        there = await run_sync(self.repositories.tag, name, tag)
        if there is not None and there != digest and is_immutable(tag, self.policy):
            raise RegistryProblem(
                SpecCode.DENIED,
                f"{name}:{tag} already exists with other content ({there[:19]}…), and a version never changes. "
                "Push this under a new version, or delete the old one first.",
                status=409,
                detail={"reason": "TAG_IMMUTABLE", "tag": tag, "digest": there},
            )

    async def _refuse_incomplete(self, name: str, manifest: OciManifest) -> None:
        for digest in manifest.blobs:
            is_here = await run_sync(self.repositories.has_blob, name, digest)
            if not is_here or await self.blobs.size(digest) is None:
                raise _missing(name, digest, "blob")
        for digest in manifest.manifests:
            if await run_sync(self.repositories.manifest, name, digest) is None:
                raise _missing(name, digest, "manifest")

    async def _unknown(self, name: str, code: SpecCode, message: str) -> RegistryProblem:
        if await run_sync(self.repositories.exists, name):
            return RegistryProblem(code, message)
        return RegistryProblem(SpecCode.NAME_UNKNOWN, f"There is no repository {name}.")


def lexical(name: str) -> tuple[str, str]:
    return name.lower(), name


@contextmanager
def _upload_problems() -> Iterator[None]:
    """Translates upload errors into the specification's codes."""
    try:
        yield
    except NotFound as error:
        raise RegistryProblem(SpecCode.BLOB_UPLOAD_UNKNOWN, str(error)) from error
    except OffsetMismatch as error:
        raise RegistryProblem(
            SpecCode.BLOB_UPLOAD_INVALID,
            str(error),
            status=416,
            detail={"expected": error.expected},
            headers={"Range": received(error.expected)},
        ) from error
    except UploadBusy as error:
        raise RegistryProblem(SpecCode.BLOB_UPLOAD_INVALID, str(error), status=409) from error
    except DigestMismatch as error:
        raise RegistryProblem(SpecCode.DIGEST_INVALID, str(error)) from error


def _missing(name: str, digest: Digest, what: str) -> RegistryProblem:
    return RegistryProblem(
        SpecCode.MANIFEST_BLOB_UNKNOWN,
        f"The manifest needs the {what} {digest}, which {name} does not have; push it first.",
        detail={"digest": digest},
    )


def _descriptor(manifest: OciManifest, digest: Digest, size: int) -> Mapping[str, Any]:
    """As in a list of referrers."""
    shown: dict[str, Any] = {"mediaType": manifest.media_type, "digest": digest, "size": size}
    if manifest.artifact_type:
        shown["artifactType"] = manifest.artifact_type
    if manifest.annotations:
        shown["annotations"] = dict(manifest.annotations)
    return shown
