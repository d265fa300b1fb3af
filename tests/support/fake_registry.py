"""A registry in memory, for tests that are about something else. It passes the same suite as a real one."""

from homeport.adapters.registry.oci import render_manifest, version_is_taken
from homeport.adapters.registry.reference import parse_reference
from homeport.core.model.deployment import digest_of_bytes
from homeport.errors import NotFound, PeerUnavailable
from homeport.ports import Artifact
from homeport.vocabulary import Digest


class FakeRegistry:
    """Implements `ports.Registry`. Set `is_reachable` to False to pull the plug."""

    def __init__(self) -> None:
        self.is_reachable = True
        self._artifacts: dict[tuple[str, str, str], Artifact] = {}

    async def pull(self, repository: str, tag: str, *, user: str = "") -> Artifact:
        reference = parse_reference(repository, tag)
        self._check_reachable(reference.host)
        artifact = self._artifacts.get((reference.host, reference.name, reference.tag))
        if artifact is None:
            raise NotFound(f"The registry {reference.host} has no {reference.name}:{reference.tag}.")
        return artifact

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest:
        reference = parse_reference(repository, tag)
        self._check_reachable(reference.host)
        digest = digest_of_bytes(render_manifest(artifact))
        there = self._artifacts.get((reference.host, reference.name, reference.tag))
        if there is not None and there != artifact:
            raise version_is_taken(reference)
        for name in (reference.tag, str(digest)):
            self._artifacts[reference.host, reference.name, name] = artifact
        return digest

    def _check_reachable(self, host: str) -> None:
        if not self.is_reachable:
            raise PeerUnavailable(f"The registry {host} cannot be reached (connection refused).")
