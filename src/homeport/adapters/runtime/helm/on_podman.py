"""Runs helm components on Podman, without Kubernetes: `helm template`, then kube play, a pod at a time.

Only prepare and apply need the helm program; observing and removing use labels alone.
"""

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from homeport.adapters.runtime.compose.files import (
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_DIGEST,
    LABEL_NODE,
    configuring,
    container_labels,
    project_name,
)
from homeport.adapters.runtime.compose.removal import remove_images_unused, remove_project
from homeport.adapters.runtime.docker_api.client import EngineRefusal, Json, ListedContainer
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.image_pull import pull_if_missing
from homeport.adapters.runtime.docker_api.output import follow_container
from homeport.adapters.runtime.failures import create_failed
from homeport.adapters.runtime.health.observations import failed_or_all, missing, observed, sample
from homeport.adapters.runtime.helm.chart import chart_path, fetch_chart
from homeport.adapters.runtime.helm.kube_checks import check_pod_container
from homeport.adapters.runtime.helm.kube_kinds import explain_refused, read_manifests
from homeport.adapters.runtime.helm.kube_play import KubePlay, PodSeen
from homeport.adapters.runtime.helm.kube_pods import LABEL_CHECKS, LABEL_CONTAINERS, LABEL_POD, KubePod, make_pods
from homeport.adapters.runtime.helm.kube_services import service_notes
from homeport.adapters.runtime.helm.program import INSTALL_HINT, MISSING, find_helm, render
from homeport.adapters.runtime.port_holders import naming_port_holder
from homeport.adapters.runtime.programs.concurrently import at_once
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import ContainerState, HealthSample
from homeport.core.node.demands import pod_demands
from homeport.core.node.permissions import EVERYTHING, Permissions, refusal
from homeport.core.secrets import masked
from homeport.errors import InvalidInput, WorkFailed
from homeport.failpoints import Point, passing
from homeport.log import get_log
from homeport.ports import Container, IsDue, Observation, OnProgress, OutputLine, Registry, Workload
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType, Step

log = get_log("homeport.runtime")

LOG_CONTAINERS_MAX = 100


class HelmOnPodman:
    """Used together with a `ComposeRuntime`, which starts and closes the engine that both use."""

    name = "podman"

    def __init__(
        self, engine: ContainerEngine, registry: Registry, node_id: NodeId, permissions: Permissions = EVERYTHING
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._node_id = node_id
        self._permissions = permissions
        self._api = engine.api()
        self._play = KubePlay(self._api)
        self._helm: Path | None = None
        self.profile_types: tuple[ProfileType, ...] = ()

    async def start(self) -> None:
        self._helm = find_helm(self._engine.environment)
        self.profile_types = (ProfileType.HELM,) if self._helm is not None else ()
        if self._helm is None:
            log.info("helm not found, charts disabled", hint=INSTALL_HINT)

    async def close(self) -> None:
        """The `ComposeRuntime` closes the engine."""

    async def version(self) -> str:
        return await self._api.version()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        if spec.type is not ProfileType.HELM or self._helm is None:
            why = f"{spec.name} is of type {spec.type.value}." if self._helm is not None else MISSING
            raise WorkFailed(Code.UNSUPPORTED_TYPE, why, source=spec.name)
        chart = chart_path(workload)
        if not chart.is_file():
            on_progress(Step.FETCHING, f"fetching {spec.name} {spec.revision}", 0, 0)
            await fetch_chart(self._registry, spec, chart)
        pods, notes = await self._render(workload)
        for note in notes:
            on_progress(Step.FETCHING, note, 0, 0)
        for image in sorted({image for pod in pods for image in pod.images}):
            await pull_if_missing(self._engine, self._api, spec, image, on_progress)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        if not chart_path(workload).is_file():
            await self.prepare(workload, on_progress)
        pods, _ = await self._render(workload)
        seen = {pod.name: pod for pod in await self._pods(workload.deployment_id, spec.name)}
        await self._remove_foreign(workload, seen)
        wanted = {pod.name for pod in pods}
        outdated = [
            pod for pod in seen.values() if pod.name not in wanted or pod.labels.get(LABEL_DIGEST) != spec.digest
        ]
        if outdated:
            on_progress(Step.STOPPING, f"stopping the running {spec.name}", 0, 0)
            await self._remove_pods(outdated, spec.name)
            passing(Point.RUNTIME_AFTER_STOP)
        present = seen.keys() - {pod.name for pod in outdated}
        try:
            with anyio.fail_after(spec.timeout_seconds):
                await self._run_all(workload, pods, present, on_progress)
        except TimeoutError as error:
            message = f"{spec.name} was not started within {spec.timeout_seconds:.0f} s."
            raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error
        except EngineRefusal as refusal:
            failure = create_failed(spec.name, masked(refusal.message, spec.secret_values.values()))
            raise await naming_port_holder(failure, self._api) from refusal
        passing(Point.RUNTIME_AFTER_CREATE)
        await self._refuse_exited(workload)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        listed = await self._containers(deployment_id)
        inspected = {container.id: await self._inspect(container) for container in listed}
        components = sorted({container.labels[LABEL_COMPONENT] for container in listed})
        return [
            self._observed(name, [each for each in listed if each.labels[LABEL_COMPONENT] == name], inspected)
            for name in components
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        samples: list[HealthSample] = [missing(name) for name in _missing(listed)]
        await at_once(partial(self._sample, samples, is_due), listed)
        return samples

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        found = {container.name: await self._inspect(container) for container in listed}
        for inspected in failed_or_all(found)[:LOG_CONTAINERS_MAX]:
            framed = not inspected["Config"].get("Tty")
            async for chunk in self._api.logs(inspected["Id"], tail=tail, framed=framed):
                yield chunk

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        async for lines in follow_container(self._api, container.id, resume, component=workload.spec.name):
            yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        listed = await self._containers(deployment_id, component) if remove_images else []
        pods = await self._pods(deployment_id, component)
        if pods:
            await self._remove_pods(pods, component)
            await self._play.remove_network_unused(self._network(deployment_id))
        await remove_images_unused(self._api, {container.image for container in listed})

    # --- looking ----------------------------------------------------------------------------------------------

    def _labels(self, deployment_id: DeploymentId, component: str | None) -> list[str]:
        labels = [f"{LABEL_DEPLOYMENT}={deployment_id}", f"{LABEL_NODE}={self._node_id}"]
        return labels + ([f"{LABEL_COMPONENT}={component}"] if component else [])

    def _network(self, deployment_id: DeploymentId) -> str:
        """One for all components of a deployment, as they would share a namespace."""
        return project_name(deployment_id, "pods", self._node_id)

    async def _pods(self, deployment_id: DeploymentId, component: str) -> list[PodSeen]:
        return await self._play.pods(self._labels(deployment_id, component))

    async def _containers(self, deployment_id: DeploymentId, component: str | None = None) -> list[ListedContainer]:
        """Without init containers, which are meant to end."""
        found = await self._api.containers(self._labels(deployment_id, component))
        return [each for each in found if each.name in _wanted(each)]

    async def _inspect(self, container: ListedContainer) -> Json | None:
        try:
            return await self._api.inspect(container.id)
        except EngineRefusal:
            return None

    def _observed(
        self, component: str, listed: Sequence[ListedContainer], inspected: Mapping[str, Json | None]
    ) -> Observation:
        seen = observed(component, listed, inspected)
        containers = [*seen.containers]
        containers += [Container(id="", name=name, running=False) for name in _missing(listed)]
        return replace(seen, containers=tuple(sorted(containers, key=lambda container: container.name)))

    async def _sample(self, samples: list[HealthSample], is_due: IsDue, container: ListedContainer) -> None:
        inspected = await self._inspect(container)
        probe = _checks_of(container).get(container.name)
        seen = sample(container, inspected)
        if inspected is not None and probe is not None and seen.state is ContainerState.RUNNING:
            seen = await check_pod_container(self._api, seen, inspected, probe, is_due)
        samples.append(seen)

    # --- acting -----------------------------------------------------------------------------------------------

    async def _render(self, workload: Workload) -> tuple[tuple[KubePod, ...], tuple[str, ...]]:
        """The pods of the chart, and notes for the user. Raises WorkFailed."""
        spec = workload.spec
        if self._helm is None:
            raise WorkFailed(Code.UNSUPPORTED_TYPE, MISSING, source=spec.name)
        text = await render(self._helm, workload, chart_path(workload), self._engine.environment)
        labels = container_labels(workload, self._node_id)
        try:
            rendered = await run_sync(read_manifests, text)
            if rendered.refused:
                raise WorkFailed(Code.UNSUPPORTED_KIND, explain_refused(rendered.refused), source=spec.name)
            project = project_name(workload.deployment_id, spec.name, self._node_id)
            pods = make_pods(rendered.documents, project, labels, self._engine.variables)
            self._require_allowed(spec, pods)
            return pods, rendered.notes + service_notes(rendered.documents)
        except InvalidInput as error:
            raise create_failed(spec.name, masked(str(error), spec.secret_values.values())) from error

    def _require_allowed(self, spec: ComponentSpec, pods: Sequence[KubePod]) -> None:
        demands = pod_demands([(pod.name, pod.documents[-1]["spec"]) for pod in pods], real=os.path.realpath)
        refused = refusal(demands, self._permissions)
        if refused is not None:
            shown = masked(refused, spec.secret_values.values())
            raise WorkFailed(Code.NOT_ALLOWED, f"{spec.name} cannot be started. {shown}", source=spec.name)

    async def _run_all(
        self, workload: Workload, pods: Sequence[KubePod], present: set[str], on_progress: OnProgress
    ) -> None:
        """Starts stopped pods, recreates those that cannot be started, and plays missing ones."""
        spec = workload.spec
        network = self._network(workload.deployment_id)
        labels = {LABEL_DEPLOYMENT: workload.deployment_id, LABEL_NODE: self._node_id}
        whole = await self._start_stopped(workload, present, on_progress)
        for pod in pods:
            if pod.name in whole:
                continue
            on_progress(Step.CREATING, f"creating {pod.name}", 0, 0)
            await self._play.remove(pod.name)
            await self._play.remove_volumes(pod.scratch)
            on_progress(Step.NETWORKING, f"networking {spec.name}: {network}", 0, 0)
            await self._play.ensure_network(network, labels)
            on_progress(Step.CONFIGURING, configuring(pod.name, ("config map", len(pod.documents) - 1)), 0, 0)
            await self._play.play(pod, network, seconds=max(spec.timeout_seconds, 1.0))

    async def _start_stopped(self, workload: Workload, present: set[str], on_progress: OnProgress) -> set[str]:
        """The pods that now have all their containers, running or just started."""
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        wanted = _wanted(listed[0]) if listed else {}
        missing = {wanted[name] for name in _missing(listed)}
        stopped = {container.labels.get(LABEL_POD) for container in listed if not container.running}
        whole = set()
        for pod in present & {container.labels.get(LABEL_POD, "") for container in listed} - missing:
            if pod in stopped:
                on_progress(Step.STARTING, f"starting {pod} again", 0, 0)
                try:
                    await self._play.start(pod)
                except EngineRefusal as refusal:
                    log.warning("pod start failed, recreating it", why=refusal.message)
                    continue
            whole.add(pod)
        return whole

    async def _remove_pods(self, pods: Sequence[PodSeen], component: str) -> None:
        try:
            for pod in pods:
                await self._play.remove(pod.id)
                await self._play.remove_volumes(f"{pod.name}.")
        except EngineRefusal as refusal:
            message = f"{component} could not be removed: {refusal.message}"
            raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from refusal

    async def _remove_foreign(self, workload: Workload, pods: Mapping[str, PodSeen]) -> None:
        """Removes containers of the same component without a pod: it was a compose component before."""
        if pods:
            return
        component = workload.spec.name
        found = await self._api.containers(self._labels(workload.deployment_id, component))
        if found:
            project = project_name(workload.deployment_id, component, self._node_id)
            await remove_project(self._api, found, project, component)

    async def _refuse_exited(self, workload: Workload) -> None:
        """A container that has already failed will not become healthy by waiting."""
        for container in await self._containers(workload.deployment_id, workload.spec.name):
            inspected = None if container.running else await self._inspect(container)
            code = inspected["State"].get("ExitCode") if inspected else 0
            if code:
                message = f"{container.name} ended with exit code {code} right after its start."
                raise WorkFailed(Code.EXITED, message, source=workload.spec.name)


def _missing(listed: Sequence[ListedContainer]) -> list[str]:
    """Missing containers of the component, according to the labels of the remaining ones."""
    present = {container.name for container in listed}
    return [name for name in (_wanted(listed[0]) if listed else {}) if name not in present]


def _wanted(container: ListedContainer) -> dict[str, str]:
    """Every container of the component, with its pod; empty for a container without a pod."""
    pairs = [entry.split("/") for entry in container.labels.get(LABEL_CONTAINERS, "").split(",") if "/" in entry]
    return {f"{pod}-{name}": pod for pod, name in pairs}


def _checks_of(container: ListedContainer) -> Json:
    try:
        found = json.loads(container.labels.get(LABEL_CHECKS) or "{}")
    except (RecursionError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
