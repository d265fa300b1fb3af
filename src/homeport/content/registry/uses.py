"""What deployments use of the registry: the wanted ones, and every release that they can roll back to.

Read from their files, and from the components that these refer to: a compose file names its images. Only names count,
without the host, because a registry has several addresses; so more may count as used than is, and never
less.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from anyio.to_thread import run_sync

from homeport.catalog.documents import load
from homeport.content.registry.errors import RegistryProblem
from homeport.content.registry.manifests import parse_manifest
from homeport.content.registry.service import RegistryService
from homeport.core.archive import check_archive
from homeport.errors import HomeportError
from homeport.lazy_dataclass import dataclass
from homeport.ports import DeploymentFilter, Store
from homeport.vocabulary import Digest

ARCHIVE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A larger layer belongs to an image, not to a component."""
ARCHIVE_LAYERS_MAX: Final = 3
DEPLOYMENTS_READ: Final = 500
"""How many are read at a time: all contents of a large fleet would fill the memory."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_IMAGE: Final = re.compile(r"(?<![\w./:-])[a-z0-9][\w.:/-]*?[\w]:[\w][\w.-]{0,127}(?![\w/:])")


@dataclass(slots=True)
class Uses:
    digests: dict[Digest, str] = field(default_factory=dict)
    """Each referenced digest, with the deployment that refers to it."""
    tags: dict[tuple[str, str], str] = field(default_factory=dict)
    """Each referenced repository and tag, likewise."""

    def of(self, name: str, reference: str) -> str | None:
        return self.digests.get(Digest(reference)) or self.tags.get((name, reference))


async def find_uses(store: Store, registry: RegistryService) -> Uses:
    uses = Uses()
    async with store.read() as reader:
        users = {each.id: f"{each.site}/{each.name}" for each in await reader.deployments(DeploymentFilter())}
        ids = sorted(users)
        for start in range(0, len(ids), DEPLOYMENTS_READ):
            for kept in await reader.revisions_of(ids[start : start + DEPLOYMENTS_READ]):
                _note_file(uses, kept.content, users[kept.deployment_id])
        for pin in await reader.pins():
            if pin.deployment_id in users:
                _note_file(uses, pin.content, users[pin.deployment_id])
    await _note_components(uses, registry)
    return uses


def _note_file(uses: Uses, content: bytes, user: str) -> None:
    _note_text(uses, content.decode(errors="replace"), user)
    try:
        document = load(content, "deployment").data
    except HomeportError:
        return  # of an invalid file only the references in its text count
    for repository, revision in _components(document):
        name = repository.removeprefix("oci://").partition("/")[2]
        uses.tags.setdefault((name, revision.replace("+", "_")), user)


def _components(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if isinstance(value.get("repository"), str) and value.get("revision") is not None:
            yield value["repository"], str(value["revision"])
        for below in value.values():
            yield from _components(below)
    elif isinstance(value, list):
        for below in value:
            yield from _components(below)


def _note_text(uses: Uses, text: str, user: str) -> None:
    for digest in _DIGEST.findall(text):
        uses.digests.setdefault(Digest(digest), user)
    for image in _IMAGE.findall(text):
        name, _, tag = image.rpartition(":")
        host, slash, rest = name.partition("/")
        is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
        uses.tags.setdefault((rest if is_host else name, tag), user)


async def _note_components(uses: Uses, registry: RegistryService) -> None:
    """Reads the components that are stored here; their references count for the deployments that use them."""
    for (name, reference), user in list(uses.tags.items()):
        try:
            pulled = await registry.manifest(name, reference)
            manifest = parse_manifest(pulled.content, pulled.media_type)
        except RegistryProblem:
            continue  # not ours
        uses.digests.setdefault(pulled.digest, user)
        if len(manifest.blobs) > ARCHIVE_LAYERS_MAX:
            continue
        for digest in manifest.blobs:
            for text in await _texts(registry, name, digest):
                _note_text(uses, text, user)


async def _texts(registry: RegistryService, name: str, digest: Digest) -> list[str]:
    """The files of a component's archive; none for other content."""
    try:
        async with registry.open_blob(name, digest) as opened:
            if opened.size_bytes > ARCHIVE_BYTES_MAX:
                return []
            content = await run_sync(opened.file.read)
        entries = await run_sync(check_archive, content)
    except HomeportError:
        return []
    return [entry.content.decode(errors="replace") for entry in entries]
