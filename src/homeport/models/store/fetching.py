"""Makes a model present on this disk: fetched once, resumed where a line broke, verified before anybody sees it.

`<folder>/blobs/<digest>/<file>` holds what is complete; `<folder>/partial/` what is still arriving, with the place to
resume. A file of this machine is used where it lies: copying a model would only cost its disk.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.files.disk import disk_problem
from homeport.adapters.files.paths import written_path
from homeport.adapters.registry.large_files import (
    OnBytes,
    RemoteFile,
    find_model,
    model_in,
    read_piece,
    safe_file_name,
)
from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.reference import parse_reference as parse_repository
from homeport.adapters.registry.web_files import ArrivingFile, ModelSourceOptions, open_file
from homeport.core.inference.models.entries import ModelEntry, Verification
from homeport.core.inference.models.references import (
    DIGEST,
    ModelReference,
    Scheme,
    check_digest,
    default_model_id,
    parse_reference,
)
from homeport.core.values.addresses import host_of, is_loopback
from homeport.errors import DigestMismatch, FetchDirectly, InvalidInput, NotFound, PeerUnavailable, Refused
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.models.store.index import ModelIndex, write_atomically
from homeport.ports import FileSource
from homeport.vocabulary import Digest

log = get_log("homeport.models")

ATTEMPTS_MAX: Final = 6
PARTIAL: Final = "arriving"
HASH_CHUNK: Final = 4 * 2**20
SPACE_KEPT_BYTES: Final = 256 * 2**20
NowMs = Callable[[], int]


@dataclass(frozen=True, slots=True)
class LocalModel:
    path: Path
    digest: str
    size_bytes: int


class ModelFetcher:
    def __init__(
        self,
        index: ModelIndex,
        registry: OciRegistry,
        options: ModelSourceOptions,
        *,
        now_ms: NowMs,
        content: FileSource | None = None,
    ) -> None:
        """`content` is what the site keeps for its nodes: asked before the internet."""
        self._index = index
        self._content = content
        self._registry = registry
        self._options = options
        self._now_ms = now_ms
        self._locks: dict[str, anyio.Lock] = {}

    async def fetch(
        self, text: str, *, digest: str, model_id: str = "", user: str = "", on_bytes: OnBytes
    ) -> LocalModel:
        """Raises InvalidInput, NotFound, Refused, PeerUnavailable, DigestMismatch, StorageFull. Two callers of one
        reference share one download. The site's cache keeps the model while it has this `user`."""
        reference = parse_reference(text)
        if digest:
            check_digest(digest)
        lock = self._locks.setdefault(reference.text, anyio.Lock())
        async with lock:
            try:
                found = await self._present(reference, digest)
                found = found or await self._bring(reference, digest, user, on_bytes)
            except OSError as error:
                problem = disk_problem(error, str(self._index.folder))
                raise problem or Refused(f"The model cannot be kept: {error.strerror or error}.") from error
        await run_sync(self._record, reference, found, model_id or default_model_id(reference))
        return found

    async def _present(self, reference: ModelReference, digest: str) -> LocalModel | None:
        """What is here already, by its digest or, without one, by its reference."""
        if reference.scheme is Scheme.FILE:
            return None
        if not digest:
            known = await run_sync(self._index.find, reference.text)
            digest = known.digest if known is not None else ""
        return await run_sync(self.stored, digest) if digest else None

    def stored(self, digest: str) -> LocalModel | None:
        folder = self._blob_folder(digest)
        files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        return LocalModel(files[0], digest, files[0].stat().st_size) if files else None

    async def _bring(self, reference: ModelReference, digest: str, user: str, on_bytes: OnBytes) -> LocalModel:
        if reference.scheme is Scheme.FILE:
            return await self._local_file(reference, digest)
        if not self._options.allow_downloads:
            raise Refused(
                f"{reference.text} is not here, and this machine may not fetch models.",
                hint="Copy the file here and use its path, or allow downloads (HOMEPORT_MODEL_DOWNLOADS=yes).",
            )
        try:
            return await self._from_site(reference, digest, user, on_bytes)
        except FetchDirectly as error:
            log.debug("model not fetched through the site", reference=reference.text, why=str(error))
        if reference.scheme is Scheme.OCI:
            return await self._from_registry(reference, digest, on_bytes)
        return await self._from_web(reference, digest, on_bytes)

    async def _local_file(self, reference: ModelReference, digest: str) -> LocalModel:
        path = await run_sync(model_file, Path(reference.path))
        found = await run_sync(digest_of_file, path)
        if digest and found != digest:
            raise _mismatch(reference, digest, found)
        return LocalModel(path, found, await run_sync(lambda: path.stat().st_size))

    async def _from_site(self, reference: ModelReference, digest: str, user: str, on_bytes: OnBytes) -> LocalModel:
        """Raises FetchDirectly where the site cannot help."""
        if self._content is None or is_loopback(host_of(reference.place.rpartition("://")[2].partition("/")[0])):
            raise FetchDirectly("An address on loopback is the machine's own.")
        remote, source = await self._at_site(self._content, reference, digest, user, on_bytes)
        if digest and remote.digest != digest:
            raise _mismatch(reference, digest, remote.digest)
        if (found := await run_sync(self.stored, remote.digest)) is not None:
            return found
        partial = self._partial(remote.digest, remote.name)
        done = await run_sync(_size, partial)
        async with self._content.open(source, remote.digest, user=user) as opened:
            await run_sync(_require_space, partial.parent, opened.size_bytes - done)
            waiting = bytearray()
            async for chunk in opened.chunks(done):
                waiting += chunk
                if len(waiting) >= HASH_CHUNK or done + len(waiting) >= opened.size_bytes:
                    await run_sync(_append, partial, bytes(waiting))
                    done += len(waiting)
                    waiting.clear()
                    on_bytes(done, opened.size_bytes)
        return await run_sync(self._accept, reference, partial, remote.digest)

    async def _at_site(
        self, content: FileSource, reference: ModelReference, digest: str, user: str, on_bytes: OnBytes
    ) -> tuple[RemoteFile, str]:
        """What the reference means, and the source of its content. A file of the web without a digest is fetched by
        the site first: only the whole has one."""
        if reference.scheme is Scheme.OCI:
            repository = f"oci://{reference.place}"
            manifest = await content.manifest(repository, reference.revision, user=user)
            return model_in(manifest.content, reference.text), repository
        if digest:
            name = safe_file_name(reference.file_name if reference.path else "")
            return RemoteFile(name, Digest(digest), 0), reference.text
        found = await content.file(reference.text, user=user, on_bytes=on_bytes)
        return RemoteFile(safe_file_name(found.name), found.digest, found.size_bytes), reference.text

    async def _from_registry(self, reference: ModelReference, digest: str, on_bytes: OnBytes) -> LocalModel:
        repository = f"oci://{reference.place}"
        remote = await find_model(self._registry, repository, reference.revision)
        if digest and remote.digest != digest:
            raise _mismatch(reference, digest, remote.digest)
        if (found := await run_sync(self.stored, remote.digest)) is not None:
            return found
        partial = self._partial(remote.digest, remote.name)
        connection = self._registry.connection(parse_repository(repository, reference.revision), "pull")
        done = await run_sync(_size, partial)
        await run_sync(_require_space, partial.parent, remote.size_bytes - done)
        while done < remote.size_bytes:
            piece = await read_piece(connection, remote.digest, done, remote.size_bytes)
            await run_sync(_append, partial, piece)
            done += len(piece)
            on_bytes(done, remote.size_bytes)
        return await run_sync(self._accept, reference, partial, remote.digest)

    async def _from_web(self, reference: ModelReference, digest: str, on_bytes: OnBytes) -> LocalModel:
        folder = self._partial("ref-" + hashlib.sha256(reference.text.encode()).hexdigest()[:32], "x").parent
        attempt = 0
        while True:
            attempt += 1
            before = await run_sync(_resumable, folder, bool(digest))
            try:
                partial, promised = await self._from_web_once(reference, digest, folder, before, on_bytes)
                return await run_sync(self._accept, reference, partial, digest or promised or "")
            except PeerUnavailable as error:
                if attempt == ATTEMPTS_MAX or await run_sync(_resumable, folder, bool(digest)) <= before:
                    raise
                log.info("model download resumed", reference=reference.text, error=str(error))

    async def _from_web_once(
        self, reference: ModelReference, digest: str, folder: Path, done: int, on_bytes: OnBytes
    ) -> tuple[Path, Digest | None]:
        # What has a digest is verified in the end, so that no validator is needed to resume.
        validator = None if digest else await run_sync(_validator, folder)
        async with open_file(reference, self._options, offset=done, validator=validator) as file:
            partial = folder / PARTIAL
            await self._receive(file, partial, done, on_bytes)
        named = folder / safe_file_name(file.name)
        await run_sync(partial.rename, named)
        return named, file.promised

    async def _receive(self, file: ArrivingFile, partial: Path, done: int, on_bytes: OnBytes) -> None:
        """Appends what arrives. A server whose file has changed sends everything."""
        if file.offset != done:
            await run_sync(partial.unlink)
            done = file.offset
        total = file.size_bytes or 0
        await run_sync(_require_space, partial.parent, max(total - done, 0))
        await run_sync(_remember, partial.parent, file.validator)
        on_bytes(done, total)
        waiting = bytearray()
        try:
            async for chunk in file.chunks():
                waiting += chunk
                if len(waiting) >= HASH_CHUNK:
                    if not total:
                        await self._require_space_for_more(partial, waiting)
                    await run_sync(_append, partial, bytes(waiting))
                    done += len(waiting)
                    waiting.clear()
                    on_bytes(done, total)
        finally:
            _append(partial, bytes(waiting))
        done += len(waiting)
        on_bytes(done, total)
        if total and done < total:
            raise PeerUnavailable(f"The download ended after {done} of {total} bytes.")

    async def _require_space_for_more(self, partial: Path, waiting: bytearray) -> None:
        """A server that does not say how much it sends may go on without end; what it sent is of no use then."""
        try:
            await run_sync(_require_space, partial.parent, len(waiting))
        except InvalidInput:
            waiting.clear()
            await run_sync(partial.unlink, True)
            raise

    def _accept(self, reference: ModelReference, partial: Path, digest: str) -> LocalModel:
        """Verified, then renamed into place. What does not match is removed: resuming it would never end well."""
        found = digest_of_file(partial)
        if digest and found != digest:
            shutil.rmtree(partial.parent, ignore_errors=True)
            raise _mismatch(reference, digest, found)
        folder = self._blob_folder(found)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = folder / partial.name
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
        shutil.rmtree(partial.parent, ignore_errors=True)
        return LocalModel(target, found, target.stat().st_size)

    def _record(self, reference: ModelReference, found: LocalModel, model_id: str) -> None:
        entries = self._index.entries()
        inside = found.path.is_relative_to(self._index.folder)
        path = str(found.path.relative_to(self._index.folder)) if inside else ""
        known = entries.get(model_id)
        entry = known if known is not None and known.source == reference.text else None
        entry = entry or ModelEntry(id=model_id, source=reference.text)
        now = self._now_ms()
        fresh = replace(
            entry,
            digest=found.digest,
            size_bytes=found.size_bytes,
            local_path=path,
            last_verified_ms=now,
            verification=Verification.PASSED.value,
        )
        if replace(fresh, last_verified_ms=0) == replace(entry, last_verified_ms=0):
            return
        self._index.put(fresh)
        line = {"ts_ms": now, "model_id": model_id, "path": str(found.path), "size_bytes": found.size_bytes}
        self._index.note({**line, "cfg": {"model_ref": reference.text, "digest": found.digest}})

    def _blob_folder(self, digest: str) -> Path:
        assert DIGEST.fullmatch(digest), "digests are checked where they enter"
        return self._index.folder / "blobs" / digest.replace(":", "-")

    def _partial(self, key: str, name: str) -> Path:
        path = self._index.folder / "partial" / key.replace(":", "-") / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path


def entry_path(index: ModelIndex, entry: ModelEntry) -> Path | None:
    """Inside the store, or a file of this machine that the entry refers to."""
    if entry.local_path:
        path = (index.folder / entry.local_path).resolve()
        if not path.is_relative_to(index.folder.resolve()):
            raise InvalidInput(f"The files of {entry.id} are outside the model store.")
        return path
    reference = parse_reference(entry.source) if entry.source else None
    if reference is not None and reference.scheme is Scheme.FILE:
        return Path(reference.path)
    return None


def remove_files(index: ModelIndex, entry: ModelEntry) -> None:
    """Only of the store, and only where no other entry uses them. A person's own file stays."""
    if not entry.local_path or any(
        other.local_path == entry.local_path for other in index.entries().values() if other.id != entry.id
    ):
        return
    path = entry_path(index, entry)
    if path is not None:
        shutil.rmtree(path.parent, ignore_errors=True)


def model_file(path: Path) -> Path:
    """The model that a path means: a file, or the one model of a folder. Raises NotFound, InvalidInput."""
    path = written_path(str(path)).absolute()
    if path.is_file():
        return path
    if not path.is_dir():
        raise NotFound(f"There is no file {path}.", hint="Check the path; on another machine it may not exist.")
    found = sorted(each for each in path.glob("*.gguf") if each.is_file())
    first = [each for each in found if "-of-" not in each.stem or each.stem.partition("-of-")[0].endswith("00001")]
    if len(first) == 1:
        return first[0]
    if not found:
        raise InvalidInput(f"{path} has no .gguf file.", hint="Name the model's file.")
    raise InvalidInput(f"{path} has {len(first)} models.", hint=f"Name one, such as  {first[0]}")


def digest_of_file(path: Path) -> Digest:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(HASH_CHUNK):
            digest.update(chunk)
    return Digest("sha256:" + digest.hexdigest())


def _mismatch(reference: ModelReference, expected: str, found: str) -> DigestMismatch:
    return DigestMismatch(
        f"{reference.text} does not match its digest: found {found}, expected {expected}.",
        hint="It was damaged, or changed at its source. Give the new digest if that is meant.",
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append(path: Path, content: bytes) -> None:
    if content:
        with path.open("ab") as file:
            file.write(content)


def _require_space(folder: Path, needed: int) -> None:
    """Asked before the first byte: a full disk would stop everything else on the machine."""
    free = shutil.disk_usage(folder).free
    if needed + SPACE_KEPT_BYTES > free:
        raise InvalidInput(
            f"The model needs {needed / 1e9:.1f} GB, and the disk has {free / 1e9:.1f} GB left.",
            hint="Remove a model (homeport models remove) or give the node another data folder.",
        )


def _resumable(folder: Path, is_verified: bool) -> int:
    """How many bytes of an interrupted download can be used; others are removed."""
    if not is_verified and not _validator(folder):
        (folder / PARTIAL).unlink(missing_ok=True)
    return _size(folder / PARTIAL)


def _remember(folder: Path, validator: str) -> None:
    write_atomically(folder / ".validator", json.dumps({"etag": validator}).encode())


def _validator(folder: Path) -> str:
    try:
        return str(json.loads((folder / ".validator").read_bytes())["etag"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
