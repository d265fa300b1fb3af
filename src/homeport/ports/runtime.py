"""The interface of the engines that run components on a node."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from homeport.core.data import DataVolume
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import CheckRules, ContainerRun, HealthSample
from homeport.core.tunnel.choosing import RunningContainer
from homeport.core.tunnel.exec_messages import Channel
from homeport.core.tunnel.targets import Endpoint, ExecTarget, TerminalSize
from homeport.lazy_dataclass import dataclass
from homeport.vocabulary import DeploymentId, Digest, NodeId, ProfileType

OnProgress = Callable[[str, str, int, int], None]
"""step (a `vocabulary.Step` value), message for a person, bytes done, bytes in all (0 when unknown)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A component of a deployment, as passed to the runtime."""

    deployment_id: DeploymentId
    spec: ComponentSpec
    folder: Path
    """Where the runtime may keep this component's files; survives restarts of the node."""
    name: str = ""
    """The deployment's name, to which its data volumes belong. Needed only where something is started."""
    site: str = ""
    """The name of the site, once the node has learned it; only for people who look at the engine."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container or process of a running component."""

    id: str
    name: str
    running: bool
    exit_code: int | None = None
    started_at: str = ""
    service: str = ""
    """What its author calls it within the component, in a compose file; empty where it has no such name."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The existing parts of a component. `digest` is that of the ComponentSpec it was started from."""

    component: str
    digest: Digest | None
    containers: tuple[Container, ...] = ()

    @property
    def is_running(self) -> bool:
        return bool(self.containers) and all(container.running for container in self.containers)


@dataclass(frozen=True, slots=True)
class Owned:
    """A component that exists on an engine, and its owner according to its labels."""

    node_id: NodeId
    deployment_id: DeploymentId
    component: str


@runtime_checkable
class LoadsEngines(Protocol):
    """A runtime with inference engines that are loaded and unloaded by their use."""

    async def load(self, pool_id: str) -> None: ...
    async def unload(self, pool_id: str) -> None: ...


@runtime_checkable
class SharedEngine(Protocol):
    """An engine whose workloads survive the loss of the node's folder, and that may serve several nodes."""

    async def owned(self) -> Sequence[Owned]:
        """Everything with Homeport's labels, of every node, sorted."""
        ...

    async def remove_owned(self, item: Owned) -> None:
        """Removes one of them. Data stays."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadProcess:
    """A running container or program of a component, and its first process on this machine."""

    id: str
    deployment_id: DeploymentId
    component: str
    container: str
    """Its name, for people."""
    pid: int


@runtime_checkable
class HasProcesses(Protocol):
    """A runtime whose workloads are processes of this machine, so that their use of it can be measured."""

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        """Those of this node that run. `known` are those found before whose process still lives, by id: they need
        not be looked at again. Raises EngineUnavailable."""
        ...


@runtime_checkable
class KeepsData(Protocol):
    """A runtime whose components have data volumes, which stay when a component is removed."""

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        """Removes all that the component's volumes hold; `name` is the deployment's. The component is gone by now."""
        ...


class OutputLine(NamedTuple):
    """One line that a container has written, or that lines are missing at the end."""

    text: bytes | None
    """Without its end; cut where it is very long. None where there is no line after those that are missing."""
    resume: str
    """Where the output continues after this line. Only the runtime that gave it can read it."""
    at: datetime | None = None
    """None where the engine does not record it."""
    is_error: bool = False
    """Whether it was written to stderr."""
    size: int | None = None
    """The true length of a line that was cut."""
    lost: str = ""
    """Why lines before this one are missing, where some are."""


@runtime_checkable
class FollowsOutput(Protocol):
    """A runtime that can follow what containers write."""

    def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        """The container's output after `resume`, or that of the last hour where it is empty, as it is written. Ends
        with the container, or never: the caller knows when the container is gone. Raises EngineUnavailable, and
        WorkFailed where the engine does not give it."""
        ...


class ExecSession(Protocol):
    """A command that runs in a container. Leaving it before its end ends the command."""

    async def read(self) -> tuple[Channel, bytes] | None:
        """What it writes, on OUTPUT or ERRORS; None when it has ended."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def resize(self, size: TerminalSize) -> None: ...

    async def exit_code(self) -> int:
        """After `read` has returned None."""
        ...


class OpensContainers(Protocol):
    """Looks into running containers."""

    async def running_containers(self, deployment_id: DeploymentId) -> Sequence[RunningContainer]:
        """Those of this node."""
        ...

    async def data_volumes(self) -> Sequence[DataVolume]:
        """Of all deployments that this engine has had, of other nodes with the same engine too."""
        ...

    def execute_in(self, container_id: str, target: ExecTarget) -> AbstractAsyncContextManager[ExecSession]:
        """Raises Refused or NotFound with the engine's reason: a program that is not there, for one."""
        ...

    async def address_of(self, container_id: str, port: int) -> Endpoint:
        """Where this machine reaches a port of the container. Raises Refused where it cannot."""
        ...


@runtime_checkable
class HasContainers(Protocol):
    """A runtime into whose containers a person can look, or one around such a runtime."""

    def container_access(self) -> OpensContainers | None:
        """None where there are no containers."""
        ...


def container_access(runtime: object) -> OpensContainers | None:
    return runtime.container_access() if isinstance(runtime, HasContainers) else None


IsDue = Callable[[ContainerRun, CheckRules], bool]
"""Whether the health check of a run should be executed now; decided by `core.node.health`."""


class Runtime(Protocol):
    """Acts on components. Every call is idempotent; failures are WorkFailed with a code, or EngineUnavailable."""

    name: str
    """podman, docker, containerd, process or null."""
    profile_types: tuple[ProfileType, ...]

    async def start(self) -> None:
        """Makes the engine reachable; raises EngineUnavailable with a sentence that says what to do."""
        ...

    async def close(self) -> None:
        """Disconnects from the engine. Workloads keep running."""
        ...

    async def version(self) -> str: ...

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        """Pulls all that `apply` needs, and changes nothing that runs."""
        ...

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        """Makes the component run as specified. A container that already runs from an equal spec is not replaced."""
        ...

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        """Every component of a deployment that exists here in any form, sorted by name."""
        ...

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        """Observes each container of the component once, and executes the health checks that are due. Stateless:
        `core.node.health` makes a verdict of the samples. Empty where nothing of it exists."""
        ...

    def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]: ...

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None: ...
