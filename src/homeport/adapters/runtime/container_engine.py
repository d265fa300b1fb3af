"""What differs between the engines that speak the Docker-compatible API; `compose.py` is the rest, written once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from homeport.adapters.runtime.engine_api import EngineApi, Json
from homeport.adapters.runtime.socket_http import Address
from homeport.ports import Health


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a user wants the engine to be used."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment to take the engine's settings from (CONTAINERS_CONF, DOCKER_HOST and the like)."""
    socket: Path | None = None
    """The engine's API socket; None means DOCKER_HOST, CONTAINER_HOST, or the usual place."""
    podman: str = "podman"
    podman_args: tuple[str, ...] = ()
    """Global arguments for every call of podman, such as `--root` and `--runroot`."""
    kubeconfig: Path | None = None
    """The cluster that charts go to; None runs them without Kubernetes, on Podman."""


class ContainerEngine(Protocol):
    name: str
    environment: Mapping[str, str]
    """For the engine's programs; already reduced to what they need."""

    async def start(self) -> None:
        """Raises EngineUnavailable with a sentence that says what to do."""
        ...

    async def close(self) -> None: ...

    async def reach(self) -> Address:
        """Where the API answers; brings the engine's service back when it has died."""
        ...

    def compose_command(self) -> list[str]:
        """The compose tool and its global arguments. Raises EngineUnavailable when there is none."""
        ...

    def compose_secrets(self, names: Sequence[str]) -> list[str] | None:
        """Arguments by which the containers take these variables from the compose tool's own environment, so that
        their values stand on no command line. None where the tool does so when the file names them without a value.
        """
        ...

    async def pull(self, api: EngineApi, image: str, on_bytes: Callable[[int, int], None]) -> None: ...

    async def check(self, api: EngineApi, container: str, inspected: Json) -> Health:
        """The state of a running container's own health check, run now if that is ours to do and it is due."""
        ...
