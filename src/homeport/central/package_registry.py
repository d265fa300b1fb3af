"""A repository of app packages in an OCI registry, as a registry of apps: each tag whose description agrees is a
version. What a tag names is pinned by its digest when it is added, and not read from the registry again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.signatures import require_signature
from homeport.catalog.description import parse_description
from homeport.catalog.packages import DESCRIPTION_TYPE, read_package, split_reference, version_of
from homeport.errors import HomeportError, InvalidInput, NotFound, PermanentError, Refused
from homeport.log import get_log
from homeport.ports import TreeFile
from homeport.vocabulary import Commit, Digest

SCHEME: Final = "oci://"
CATEGORY: Final = "packages"
"""Of repositories that are not below another name."""
SHOWN_MAX: Final = 5

log = get_log("homeport.central.packages")


class PackageTree:
    """Implements `fleet.central.apps.AppTree`."""

    def __init__(self, reference: str, registry: OciRegistry, keys: Sequence[Path] = ()) -> None:
        """With `keys`, packages that none of them has signed are refused."""
        self._repository, self._wanted = split_reference(reference)
        self._registry = registry
        self._keys = keys
        *above, self._app = self._repository.removeprefix(SCHEME).partition("/")[2].split("/")
        self._category = above[-1] if above else CATEGORY
        self._found: dict[str, tuple[Digest, bytes]] = {}

    def commit_of(self, path: str) -> Commit | None:
        return Commit(self._found[path][0])

    async def paths(self) -> Sequence[str]:
        """Tags of something else are passed over, unless it is the one that was asked for. Raises the registry's
        errors, Refused for a package without the signature that is needed, and NotFound."""
        if self._wanted is not None:
            await self._read(self._wanted)
            return list(self._found)
        tags = [tag for tag in await self._registry.tags(self._repository) if not tag.endswith(".sig")]
        others: list[str] = []
        for tag in tags:
            try:
                await self._read(tag)
            except Refused:
                raise
            except PermanentError as error:
                others.append(f"{tag}: {_line(error)}")
        if others:
            log.info("tags passed over, not app packages", repository=self._repository, tags=len(others))
        if not self._found:
            why = f" {' '.join(others[:SHOWN_MAX])}" if others else ""
            raise NotFound(f"{self._repository} has no app package among its {len(tags)} tags.{why}")
        return list(self._found)

    async def file(self, path: str, *, size_max: int) -> TreeFile:
        return TreeFile(path, self._found[path][1])

    async def _read(self, tag: str) -> None:
        digest, artifact = await self._registry.pull_pinned(self._repository, tag, only={DESCRIPTION_TYPE})
        shown = f"{self._repository}{'@' if ':' in tag else ':'}{tag}"
        content = read_package(artifact, shown)
        version = parse_description(content, shown).app.version
        if ":" not in tag and version != version_of(tag) and version != tag:
            raise InvalidInput(f'{shown} has the description of version "{version}"; tag and version must be equal.')
        if self._keys:
            await require_signature(self._registry, self._repository, digest, self._keys)
        self._found[f"{self._category}/{self._app}/{version}/margo.yaml"] = (digest, content)


def _line(error: HomeportError) -> str:
    return str(error).splitlines()[0][:200]
