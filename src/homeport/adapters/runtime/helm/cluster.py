"""Runs helm components in the Kubernetes cluster of a kubeconfig: `helm upgrade --install`, `status`, `uninstall`.

Installed releases are recorded in the data folder, a file per release, so that observing a deployment without charts
needs no cluster. The current state always comes from helm: the digest is in the release's description.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import anyio

from homeport.adapters.runtime.failures import create_failed, meaningful_line
from homeport.adapters.runtime.helm.chart import chart_path, fetch_chart
from homeport.adapters.runtime.helm.program import (
    RELEASE_NAME_MAX,
    adding_arguments,
    require_helm,
    run_helm,
    status_command,
    uninstall_command,
    upgrade_command,
    values_of,
)
from homeport.adapters.runtime.programs.environment import engine_environment
from homeport.core.model.deployment import digest_of_bytes
from homeport.core.model.health import ContainerRun, ContainerState, HealthSample
from homeport.core.secrets import masked
from homeport.errors import EngineUnavailable, WorkFailed
from homeport.log import get_log
from homeport.ports import Container, IsDue, Observation, OnProgress, Registry, Workload
from homeport.vocabulary import Code, DeploymentId, Digest, NodeId, ProfileType, Step

STATUS_SECONDS = 30.0
REMOVE_SECONDS = 240.0
GRACE_SECONDS = 10.0
"""How much longer helm itself may take than its own timeout."""

log = get_log("homeport.runtime")


class HelmInCluster:
    name = "kubernetes"
    profile_types: tuple[ProfileType, ...] = (ProfileType.HELM,)

    def __init__(
        self,
        kubeconfig: Path,
        data: Path,
        registry: Registry,
        node_id: NodeId,
        environment: Mapping[str, str],
        *,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`variables` are the machine's, for every container that has none of that name."""
        self._variables = variables or {}
        self._kubeconfig = kubeconfig
        self._notes = data / "releases"
        self._registry = registry
        self._node_id = node_id
        self._environment = engine_environment(environment)
        self._helm = Path("helm")

    async def start(self) -> None:
        self._helm = require_helm(self._environment)
        if not self._kubeconfig.is_file():
            hint = "Give the file of a cluster with --kubeconfig, or leave it out to run charts without Kubernetes."
            raise EngineUnavailable(f"There is no kubeconfig {self._kubeconfig}.", hint=hint)
        if self._variables and not (version := await self.version()).startswith("v3."):
            # helm 4 takes a plugin in the place of a program.
            log.warning("workload variables not added to charts, which needs helm 3", version=version)
            self._variables = {}

    async def close(self) -> None:
        """Nothing is held open."""

    async def version(self) -> str:
        done = await run_helm([str(self._helm), "version", "--short"], self._environment, STATUS_SECONDS)
        return done.output.strip()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        """The chart alone: the cluster pulls images itself."""
        spec = workload.spec
        if not chart_path(workload).is_file():
            on_progress(Step.FETCHING, f"fetching {spec.name} {spec.revision}", 0, 0)
            await fetch_chart(self._registry, spec, chart_path(workload))

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        spec, deployment_id = workload.spec, workload.deployment_id
        if not chart_path(workload).is_file():
            await self.prepare(workload, on_progress)
        seen = await self._look(deployment_id, spec.name)
        if seen is not None and seen.digest == spec.digest and seen.is_running:
            return
        on_progress(Step.CREATING, f"installing {spec.name} into the cluster", 0, 0)
        await anyio.Path(self._note(deployment_id, spec.name).parent).mkdir(parents=True, exist_ok=True)
        await anyio.Path(self._note(deployment_id, spec.name)).touch()
        release = self._release(deployment_id, spec.name)
        try:
            with values_of(spec) as values:
                more = adding_arguments(self._variables)
                command = upgrade_command(
                    self._helm, release, chart_path(workload), spec, [*values, *more], kubeconfig=self._kubeconfig
                )
                done = await run_helm(command, self._environment, spec.timeout_seconds + GRACE_SECONDS)
        except TimeoutError as error:
            message = f"{spec.name} was not installed within {spec.timeout_seconds:.0f} s."
            raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error
        if done.exit_code != 0:
            reason = masked(meaningful_line(done.errors), spec.secret_values.values())
            if "timed out" in reason or "context deadline exceeded" in reason:
                raise WorkFailed(Code.TIMEOUT, f"{spec.name} was not ready in time: {reason}", source=spec.name)
            raise create_failed(spec.name, reason)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        folder = anyio.Path(self._notes / deployment_id)
        names = sorted([note.name async for note in folder.iterdir()]) if await folder.is_dir() else []
        found = [await self._look(deployment_id, name) for name in names]
        return [each for each in found if each is not None]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        """helm has waited for readiness; from then on the cluster maintains it, and helm's status is passed on."""
        name = workload.spec.name
        seen = await self._look(workload.deployment_id, name)
        if seen is None:
            return (
                HealthSample(
                    name, ContainerRun(name), ContainerState.STOPPED, message=f"{name} is not in the cluster"
                ),
            )
        state, message = (
            (ContainerState.READY, "") if seen.is_running else (ContainerState.STOPPED, f"{name} is not deployed")
        )
        return (HealthSample(name, ContainerRun(seen.containers[0].id), state, message=message),)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        yield f"The logs of {workload.spec.name} are in its cluster: kubectl logs\n".encode()

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        note = anyio.Path(self._note(deployment_id, component))
        if not await note.exists():
            return
        release = self._release(deployment_id, component)
        command = uninstall_command(self._helm, release, REMOVE_SECONDS, kubeconfig=self._kubeconfig)
        try:
            done = await run_helm(command, self._environment, REMOVE_SECONDS + GRACE_SECONDS)
        except TimeoutError as error:
            message = f"{component} was not removed from the cluster within {REMOVE_SECONDS:.0f} s."
            raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from error
        if done.exit_code != 0:
            message = f"{component} could not be removed from the cluster: {meaningful_line(done.errors)}"
            raise WorkFailed(Code.REMOVE_FAILED, message, source=component)
        await note.unlink(missing_ok=True)

    def _note(self, deployment_id: DeploymentId, component: str) -> Path:
        return self._notes / deployment_id / component

    def _release(self, deployment_id: DeploymentId, component: str) -> str:
        return release_in_cluster(deployment_id, component, self._node_id)

    async def _look(self, deployment_id: DeploymentId, component: str) -> Observation | None:
        """helm's status of the release; None when there is none. Raises EngineUnavailable for an unreachable
        cluster."""
        if not self._note(deployment_id, component).exists():
            return None
        release = self._release(deployment_id, component)
        command = status_command(self._helm, release, kubeconfig=self._kubeconfig)
        try:
            done = await run_helm(command, self._environment, STATUS_SECONDS)
        except TimeoutError as error:
            raise EngineUnavailable(f"The cluster of {self._kubeconfig} does not answer.") from error
        if done.exit_code != 0:
            if "not found" in done.errors:
                return None
            reason = meaningful_line(done.errors)
            raise EngineUnavailable(f"The cluster of {self._kubeconfig} does not answer: {reason}")
        return read_status(component, release, done.output)


def release_in_cluster(deployment_id: DeploymentId, component: str, node_id: NodeId) -> str:
    """Begins with the component's name, as Margo requires; deployments and nodes may share a cluster."""
    mark = digest_of_bytes(f"{deployment_id} {node_id}".encode()).removeprefix("sha256:")[:8]
    return f"{component[: RELEASE_NAME_MAX - 9].rstrip('-')}-{mark}"


def read_status(component: str, release: str, output: str) -> Observation:
    """`helm status --output json` as an observation. A release that is not deployed counts as stopped."""
    info = json.loads(output).get("info") or {}
    description = str(info.get("description") or "")
    runs = info.get("status") == "deployed"
    started = str(info.get("last_deployed") or "")
    container = Container(id=release, name=release, running=runs, started_at=started)
    digest = Digest(description) if description.startswith("sha256:") else None
    return Observation(component, digest, (container,))
