"""What deployments use of the registry: the wanted ones, and every release that they can roll back to.

Read from their files, and from the components that these refer to: a compose file names its images. Only names count,
without the host, because a registry has several addresses; so more may count as used than is, and never
less.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync

from homeport.catalog.documents import load
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.manifests import parse_manifest
from homeport.content.registry.service import RegistryService
from homeport.core.archive import check_archive
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.ports import Reader, RevisionUser, Store
from homeport.vocabulary import Digest

ARCHIVE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger layer belongs to an image, not to a component."""
ARCHIVE_LAYERS_MAX: Final = 3
DEPLOYMENTS_READ: Final = 500
"""The revisions of so many are read at a time: all contents of a large fleet would fill the memory."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE: Final = re.compile(r"(?<![\w./:-])[a-z0-9][\w.:/-]*?[\w]:[\w][\w.-]{0,127}(?![\w/:])")


@dataclass(frozen=True, slots=True)
class References:
    """What a text refers to."""

    digests: frozenset[Digest] = frozenset()
    tags: frozenset[tuple[str, str]] = frozenset()
    """Repositories and tags."""


@dataclass(slots=True)
class Uses:
    digests: dict[Digest, str] = field(default_factory=dict)
    """Each referenced digest, with the deployment that refers to it."""
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    """Each referenced repository and tag, likewise."""

    def of(self, name: str, reference: str) -> str | None:
        return self.digests.get(Digest(reference)) or self.tags.get((name, reference))

    def add(self, found: References, user: str) -> None:
        for digest in found.digests:
            self.digests.setdefault(digest, user)
        for tag in found.tags:
            self.tags.setdefault(tag, user)


class UsesOfDeployments:
    """Finds what all deployments use. A revision and a blob never change, so each is read once; equal references are
    kept once, since deployments of one app have the same."""

    def __init__(self, store: Store, registry: RegistryService) -> None:
        self._store = store
        self._registry = registry
        self._of_revisions: dict[Digest, References] = {}
        self._of_blobs: dict[Digest, References] = {}
        self._equal: dict[References, References] = {}
        self._turn = anyio.Lock()

    async def find(self) -> Uses:
        async with self._turn:
            return await self._find()

    async def _find(self) -> Uses:
        uses = Uses()
        async with self._store.read() as reader:
            users = await reader.revision_users()
            await self._read_new(reader, users)
            pins = await reader.pins()
        names = {each.deployment_id: f"{each.site}/{each.name}" for each in users}
        for each in users:
            uses.add(self._of_revisions.get(each.revision, NOTHING), names[each.deployment_id])
        for pin in pins:
            if pin.deployment_id in names:
                uses.add(await run_sync(references_of_file, pin.content), names[pin.deployment_id])
        await self._add_components(uses)
        return uses

    async def _read_new(self, reader: Reader, users: Sequence[RevisionUser]) -> None:
        known = {each.revision for each in users}
        self._of_revisions = {key: found for key, found in self._of_revisions.items() if key in known}
        self._equal = {found: found for found in self._of_revisions.values()}
        new = sorted({each.deployment_id for each in users if each.revision not in self._of_revisions})
        for start in range(0, len(new), DEPLOYMENTS_READ):
            kept = await reader.revisions_of(new[start : start + DEPLOYMENTS_READ])
            unread = {each.revision: each.content for each in kept if each.revision not in self._of_revisions}
            read = await run_sync(_references_of_files, unread)
            self._of_revisions |= {key: self._equal.setdefault(found, found) for key, found in read.items()}

    async def _add_components(self, uses: Uses) -> None:
        """Reads the components that are stored here; their references count for the deployments that use them."""
        read: dict[Digest, References] = {}
        for (name, reference), user in list(uses.tags.items()):
            try:
                pulled = await self._registry.manifest(name, reference)
                manifest = parse_manifest(pulled.content, pulled.media_type)
            except RegistryProblem:
                continue  # not ours
            uses.digests.setdefault(pulled.digest, user)
            if len(manifest.blobs) > ARCHIVE_LAYERS_MAX:
                continue
            for digest in manifest.blobs:
                found = self._of_blobs.get(digest) or await self._references_of_blob(name, digest)
                if found is not None:
                    read[digest] = found
                    uses.add(found, user)
        self._of_blobs = read

    async def _references_of_blob(self, name: str, digest: Digest) -> References | None:
        """Of the files of a component's archive, none for other content; None where it could not be read."""
        try:
            async with self._registry.open_blob(name, digest) as opened:
                if opened.size_bytes > ARCHIVE_BYTES_MAX:
                    return NOTHING
                content = await run_sync(opened.file.read)
        except HomeportError:
            return None
        return await run_sync(references_of_archive, content)


def _references_of_files(contents: Mapping[Digest, bytes]) -> Mapping[Digest, References]:
    return {revision: references_of_file(content) for revision, content in contents.items()}


def references_of_archive(content: bytes) -> References:
    try:
        entries = check_archive(content)
    except HomeportError:
        return NOTHING
    return references_of_text("\n".join(entry.content.decode(errors="replace") for entry in entries))


def references_of_file(content: bytes) -> References:
    """Of a deployment file."""
    found = references_of_text(content.decode(errors="replace"))
    try:
        document = load(content, "deployment").data
    except HomeportError:
        return found  # of an invalid file only the references in its text count
    tags = {
        (repository.removeprefix("oci://").partition("/")[2], revision.replace("+", "_"))
        for repository, revision in _components(document)
    }
    return References(found.digests, found.tags | tags)


def references_of_text(text: str) -> References:
    tags = set()
    for image in _IMAGE.findall(text):
        name, _, tag = image.rpartition(":")
        host, slash, rest = name.partition("/")
        is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
        tags.add((rest if is_host else name, tag))
    return References(frozenset(Digest(each) for each in _DIGEST.findall(text)), frozenset(tags))


def _components(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if isinstance(value.get("repository"), str) and value.get("revision") is not None:
            yield value["repository"], str(value["revision"])
        for below in value.values():
            yield from _components(below)
    elif isinstance(value, list):
        for below in value:
            yield from _components(below)


NOTHING: Final = References()
