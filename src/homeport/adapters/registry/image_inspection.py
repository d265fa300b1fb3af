"""Reads which images a component names, and what they consist of, from registries. Implements `ports.Images`.

What was found is kept for a while: Docker Hub counts every manifest that is read.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from anyio.to_thread import run_sync

from homeport.adapters.files.bounded_yaml import load_documents
from homeport.adapters.network.http_client import parse_json
from homeport.adapters.registry.upstream import DOCKER_HUB, RegistryUpstream
from homeport.core.archive import COMPOSE_FILE, check_archive
from homeport.core.custom import read_custom
from homeport.core.images import Blobs, blobs_of, compose_images, manifest_for
from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import plain_environment
from homeport.errors import HomeportError, InvalidInput
from homeport.lazy_dataclass import dataclass
from homeport.log import get_log
from homeport.ports import Registry
from homeport.vocabulary import ProfileType

log = get_log(__name__)

KEPT_MAX: Final = 256
KEPT_SECONDS: Final = 600.0
DOTENV: Final = ".env"

Key = TypeVar("Key")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _ComposeFile:
    project: Any
    has_defaults: bool = True
    """False where a file of variables is beside it."""


class ImageInspection:
    def __init__(
        self, registry: Registry, upstream: RegistryUpstream, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._upstream = upstream
        self._monotonic = monotonic
        self._files: OrderedDict[tuple[str, str], tuple[float, _ComposeFile]] = OrderedDict()
        self._blobs: OrderedDict[tuple[str, str], tuple[float, Blobs]] = OrderedDict()

    async def named(self, spec: ComponentSpec, *, compose: str | None = None) -> Mapping[str, str] | None:
        if spec.type is ProfileType.CUSTOM:
            custom, _ = read_custom(spec.extensions, repository=spec.repository, revision=spec.revision)
            return {spec.name: custom.image} if custom is not None and custom.image else None
        if spec.type is not ProfileType.COMPOSE:
            return None
        try:
            file = await (self._pulled(spec) if compose is None else run_sync(_read, compose.encode()))
        except HomeportError as error:
            log.debug("images of a component not known", component=spec.name, why=str(error))
            return None
        return compose_images(file.project, plain_environment(spec), has_defaults=file.has_defaults)

    async def _pulled(self, spec: ComponentSpec) -> "_ComposeFile":
        key = (spec.repository, spec.revision)
        file = self._kept(self._files, key)
        if file is None:
            artifact = await self._registry.pull(*key)
            file = await run_sync(_compose_file, [layer.content for layer in artifact.layers])
            self._keep(self._files, key, file)
        return file

    async def blobs(self, image: str, architecture: str) -> Blobs | None:
        key = (image, architecture)
        found = self._kept(self._blobs, key)
        try:
            if found is None:
                found = await self._read(image, architecture)
        except HomeportError as error:
            log.debug("size of an image not known", image=image, why=str(error))
            return None
        if found is not None:
            self._keep(self._blobs, key, found)
        return found

    async def _read(self, image: str, architecture: str) -> Blobs | None:
        repository, reference = located_image(image)
        for _ in range(2):  # An index names the manifest for each platform.
            manifest = await self._upstream.manifest(repository, reference, known=None)
            assert manifest is not None, "nothing of it is known"
            try:
                document = parse_json(manifest.content)
            except ValueError as error:
                raise InvalidInput(f"The manifest of {image} is not JSON.") from error
            if (blobs := blobs_of(document)) is not None:
                return blobs
            chosen = manifest_for(document, architecture)
            if chosen is None:
                return None
            reference = chosen
        return None

    def _kept(self, kept: "OrderedDict[Key, tuple[float, Found]]", key: Key) -> Found | None:
        until, found = kept.get(key, (0.0, None))
        return found if until > self._monotonic() else None

    def _keep(self, kept: "OrderedDict[Key, tuple[float, Found]]", key: Key, found: Found) -> None:
        kept[key] = (self._monotonic() + KEPT_SECONDS, found)
        kept.move_to_end(key)
        while len(kept) > KEPT_MAX:
            kept.popitem(last=False)


def _compose_file(layers: list[bytes]) -> _ComposeFile:
    """Raises InvalidInput and TooLarge."""
    if len(layers) != 1:
        raise InvalidInput("The component has not one layer.")
    entries = {entry.path: entry for entry in check_archive(layers[0])}
    return replace(_read(entries[COMPOSE_FILE].content), has_defaults=DOTENV not in entries)


def _read(content: bytes) -> _ComposeFile:
    """Raises InvalidInput."""
    documents = load_documents(content, COMPOSE_FILE)
    if len(documents) != 1:
        raise InvalidInput(f"{COMPOSE_FILE} has {len(documents)} documents.")
    return _ComposeFile(documents[0])


def located_image(image: str) -> tuple[str, str]:
    """Repository and tag or digest of an image as engines write it: `web`, `web:1`, `host:5000/web@sha256:…`."""
    name, at, digest = image.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path, tag = name, "latest"
    host, slash, rest = path.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = DOCKER_HUB, path if slash else f"library/{path}"
    return f"oci://{host}/{rest}", digest if at else tag
