"""Where components are pulled from, and the check of charts before a deploy."""

from collections.abc import Mapping
from typing import Protocol

from homeport.core.images import Blobs
from homeport.core.model.artifact import Artifact
from homeport.core.model.deployment import ComponentSpec
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import Digest


class Registry(Protocol):
    """An OCI registry. References are `oci://host[:port]/name`."""

    async def pull(self, repository: str, tag: str, *, user: str = "") -> Artifact:
        """Every layer is verified against its digest. `user` is what a site's cache keeps it for. Raises NotFound,
        PeerUnavailable, InvalidInput."""
        ...

    async def push(self, repository: str, tag: str, artifact: Artifact) -> Digest:
        """Pushing the same again changes nothing. Raises Conflict where the tag has other content."""
        ...


@dataclass(frozen=True, slots=True)
class ChartVerdict:
    """Whether a node without Kubernetes could run a chart."""

    refused: str | None = None
    """Code and message of the failure that a deploy would end in."""
    notes: tuple[str, ...] = ()
    unknown: str | None = None
    """Why the chart could not be checked."""


class Charts(Protocol):
    async def judge(self, spec: ComponentSpec) -> ChartVerdict: ...


class Images(Protocol):
    """What components run, for plans. Neither call raises a HomeportError: what is unknown is None."""

    async def named(self, spec: ComponentSpec, *, compose: str | None = None) -> Mapping[str, str] | None:
        """The images of a component, by service. `compose` is its file, where no registry has it."""
        ...

    async def blobs(self, image: str, architecture: str) -> Blobs | None:
        """What a machine of an architecture pulls for an image."""
        ...
