"""What runs components on a node."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from homeport.core.model.deployment import ComponentSpec
from homeport.vocabulary import DeploymentId, Digest, ProfileType

OnProgress = Callable[[str, str, int, int], None]
"""step (a `vocabulary.Step` value), message for a person, bytes done, bytes in all (0 when unknown)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A component of a deployment, as the runtime is told about it."""

    deployment_id: DeploymentId
    spec: ComponentSpec
    folder: Path
    """Where the runtime may keep this component's files; survives restarts of the node."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container or process of a running component."""

    id: str
    name: str
    running: bool
    exit_code: int | None = None
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is there of a component. `digest` is that of the ComponentSpec it was started from."""

    component: str
    digest: Digest | None
    containers: tuple[Container, ...] = ()

    @property
    def is_running(self) -> bool:
        return bool(self.containers) and all(container.running for container in self.containers)


@dataclass(frozen=True, slots=True)
class Run:
    """From one start of a container or process to its end."""

    id: str
    started_at: str


@dataclass(frozen=True, slots=True)
class Health:
    """`healthy` None means: not known yet, ask again."""

    healthy: bool | None
    message: str = ""
    runs: frozenset[Run] = field(default=frozenset(), compare=False)
    """For which no check speaks: that they run is all that is known. One that goes on is good; one that begins anew
    again and again is a crash that its engine covers up."""


class Runtime(Protocol):
    """Acts on components. Every call is idempotent; failures are WorkFailed with a code, or EngineUnavailable."""

    name: str
    """podman, docker, containerd, process or null."""
    profile_types: tuple[ProfileType, ...]

    async def start(self) -> None:
        """Makes the engine reachable; raises EngineUnavailable with a sentence that says what to do."""
        ...

    async def close(self) -> None:
        """Lets go of the engine. Workloads keep running."""
        ...

    async def version(self) -> str: ...

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        """Fetches all that `apply` needs, and changes nothing that runs."""
        ...

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        """Makes the component run as specified. What already runs from an equal spec keeps its container id."""
        ...

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        """Every component of a deployment that exists here in any form, sorted by name."""
        ...

    async def health(self, workload: Workload) -> Health:
        """Runs the component's health checks once. Without any, running is healthy, and `runs` says what runs."""
        ...

    def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]: ...

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None: ...
