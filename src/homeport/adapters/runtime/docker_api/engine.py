"""What differs between the engines with the Docker-compatible API; `compose.py` is the common rest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

from homeport.adapters.network.http_client import Address
from homeport.adapters.registry.image_mirror import ImageMirror
from homeport.adapters.runtime.docker_api.client import EngineApi, Json
from homeport.adapters.runtime.programs.prestarted import Prestarted
from homeport.core.model.health import HealthSample
from homeport.core.node.permissions import EVERYTHING, Permissions
from homeport.lazy_dataclass import dataclass
from homeport.ports import IsDue


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """A user's settings for the engine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment to take the engine's settings from (CONTAINERS_CONF, DOCKER_HOST and the like)."""
    socket: Path | None = None
    """The engine's API socket; None means DOCKER_HOST, CONTAINER_HOST, or the usual path."""
    podman: str = "podman"
    podman_args: tuple[str, ...] = ()
    """Global arguments for every call of podman, such as `--root` and `--runroot`."""
    permissions: Permissions = EVERYTHING
    """What components may use of the machine."""
    access_folder: Path | None = None
    """Where a registry on this machine publishes its key."""
    mirror: ImageMirror | None = None
    """Images of the node's site; None pulls all from their registries."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """For every container, below what its own description and its parameters say."""
    kubeconfig: Path | None = None
    """The cluster that charts go to; None runs them without Kubernetes, on Podman."""
    gpu_makers: tuple[str, ...] = ()
    """Of the machine's GPUs, by number."""


class ContainerEngine(Protocol):
    name: str
    environment: Mapping[str, str]
    """For the engine's programs; already reduced to what they need."""

    mirror: ImageMirror | None

    variables: Mapping[str, str]
    """Of the machine, for every container that runs a workload."""

    gpu_makers: tuple[str, ...]
    """Of the machine's GPUs, by number."""

    leaking_variables: tuple[str, ...]
    """Variables of the engine's service that it would pass to every container."""

    output_options: Json
    """Options of a new container with which its output can be read without loss."""

    async def start(self) -> None:
        """Raises EngineUnavailable with a sentence that says what to do."""
        ...

    async def close(self) -> None: ...

    async def reach(self) -> Address:
        """The address of the API; restarts the engine's service when it has died."""
        ...

    def api(self) -> EngineApi: ...

    prestarted: Prestarted | None
    """The compose tool, where starting it ahead saves time."""

    def compose_command(self, *, is_new: bool = False) -> list[str]:
        """The compose tool and its global arguments; `is_new` for a project of which no container is there. Raises
        EngineUnavailable when there is none."""
        ...

    def resolve_command(self, arguments: Sequence[str]) -> list[str]:
        """The command that prints a resolved project as YAML or JSON, and starts nothing."""
        ...

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        """Arguments with which containers take these variables from the compose tool's own environment, so that their
        values are on no command line. None where the tool does so when the file names them without a value.
        """
        ...

    def nvidia_options(self, gpus: Sequence[str]) -> Json:
        """Options of a new container with these GPUs of NVIDIA: their numbers, or "all"."""
        ...

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None: ...

    async def check(self, api: EngineApi, seen: HealthSample, inspected: Json, is_due: IsDue) -> HealthSample:
        """Adds the rules of a running container's own health check and its newest result; the check is executed now
        if the engine does not do it and it is due."""
        ...
