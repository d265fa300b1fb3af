"""Runs components on an engine with the Docker-compatible API: Podman and Docker, the same code.

A compose component is started by the compose tool, a single image by `image_containers`. Observing, stopping and
removing go through the API by label for both: that is faster, and it works when the component's files
are gone.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from homeport.adapters.jobs.containers import ContainerJobs
from homeport.adapters.runtime.component_fetch import fetch_component
from homeport.adapters.runtime.compose.files import (
    COMPOSE_FILE,
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_DIGEST,
    LABEL_NODE,
    archive_folder,
    describe_configuration,
    interpolates_only,
    project_name,
    volume_name,
    write_override,
)
from homeport.adapters.runtime.compose.project import ComposeProject, Projects
from homeport.adapters.runtime.compose.removal import remove_images_unused, remove_project, remove_volumes
from homeport.adapters.runtime.docker_api.client import EngineRefusal, Json, ListedContainer
from homeport.adapters.runtime.docker_api.container_access import ContainerAccess
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.image_containers import ImageContainers
from homeport.adapters.runtime.docker_api.image_pull import pull_if_missing
from homeport.adapters.runtime.docker_api.output import follow_container
from homeport.adapters.runtime.failures import (
    create_failed,
    disk_full,
    is_transient_start_error,
    meaningful_line,
)
from homeport.adapters.runtime.health.observations import (
    LABEL_SERVICE,
    ends,
    failed_or_all,
    has_check,
    is_done,
    missing,
    missing_services,
    observed,
    sample,
    shown_name,
)
from homeport.adapters.runtime.port_holders import naming_port_holder
from homeport.adapters.runtime.programs import child_process
from homeport.adapters.runtime.programs.concurrently import at_once
from homeport.adapters.runtime.programs.environment import compose_environment, steers_the_tool
from homeport.core.data import DataVolume, parse_volume, volume_prefix
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import ContainerState, HealthSample
from homeport.core.node.permissions import EVERYTHING, Permissions
from homeport.core.secrets import masked, plain_environment, secret_environment
from homeport.core.tunnel.choosing import RunningContainer
from homeport.core.tunnel.targets import Endpoint, ExecTarget
from homeport.errors import EngineUnavailable, Refused, WorkFailed
from homeport.failpoints import Point, passing
from homeport.log import get_log
from homeport.ports import (
    Container,
    ExecSession,
    IsDue,
    JobRunner,
    Observation,
    OnProgress,
    OpensContainers,
    OutputLine,
    Owned,
    Registry,
    Workload,
    WorkloadProcess,
)
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType, Step

log = get_log("homeport.runtime")

LOG_CONTAINERS_MAX = 100


class ComposeRuntime:
    profile_types: tuple[ProfileType, ...] = (ProfileType.COMPOSE, ProfileType.CUSTOM)

    def __init__(
        self, engine: ContainerEngine, registry: Registry, node_id: NodeId, permissions: Permissions = EVERYTHING
    ) -> None:
        self.name = engine.name
        self._engine = engine
        self._registry = registry
        self._node_id = node_id
        self._api = engine.api()
        self._access = ContainerAccess(engine, self._api)
        self._images = ImageContainers(engine, self._api, node_id, permissions)
        self._projects = Projects(engine, permissions)
        self._jobs = ContainerJobs(engine, self._api, node_id)

    async def start(self) -> None:
        await self._engine.start()
        self._engine.compose_command()

    async def close(self) -> None:
        await self._engine.close()

    async def version(self) -> str:
        return await self._api.version()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        if spec.type not in self.profile_types:
            message = f"{self.name} runs compose components and single images; {spec.name} is of type {spec.type}."
            raise WorkFailed(Code.UNSUPPORTED_TYPE, message, source=spec.name)
        if spec.type is ProfileType.CUSTOM:
            await self._images.prepare(spec, on_progress)
            return
        folder = archive_folder(workload)
        is_there = folder.is_dir()
        if self._engine.prestarted is not None:
            # To read the file, and to start it.
            await self._engine.prestarted.warm(1 if is_there else 2)
        if not is_there:
            on_progress(Step.FETCHING, f"fetching {spec.name} {spec.revision}", 0, 0)
            await fetch_component(self._registry, spec, folder)
        await self._pull_images(spec, await self._projects.resolve(workload), on_progress)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        if spec.type is ProfileType.CUSTOM or not archive_folder(workload).is_dir():
            await self.prepare(workload, on_progress)
        seen = await self._containers(workload.deployment_id, spec.name)
        is_same = bool(seen) and {container.labels.get(LABEL_DIGEST) for container in seen} == {spec.digest}
        is_whole = is_same and not missing_services(seen)
        if is_whole and await self._start_stopped(workload, seen, on_progress):
            return
        if seen and (is_whole or not is_same):
            is_running = any(container.running for container in seen)
            what = f"stopping the running {spec.name}" if is_running else f"removing what is left of {spec.name}"
            on_progress(Step.STOPPING, what, 0, 0)
            await remove_project(self._api, seen, self._project(workload.deployment_id, spec.name), spec.name)
            seen = []
            passing(Point.RUNTIME_AFTER_STOP)
        on_progress(Step.CREATING, f"creating {spec.name}", 0, 0)
        try:
            if spec.type is ProfileType.CUSTOM:
                await self._images.create(workload, self._project(workload.deployment_id, spec.name), on_progress)
            else:
                await self._up(workload, on_progress, is_new=not seen)
        except WorkFailed as failure:
            raise await naming_port_holder(failure, self._api) from failure
        passing(Point.RUNTIME_AFTER_CREATE)
        on_progress(Step.STARTING, f"starting {spec.name}", 0, 0)
        await self._refuse_exited(workload)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        listed = await self._containers(deployment_id)
        inspected = dict(zip([container.id for container in listed], await self._inspect_all(listed), strict=True))
        components = sorted({container.labels[LABEL_COMPONENT] for container in listed})
        return [
            observed(
                component,
                [container for container in listed if container.labels[LABEL_COMPONENT] == component],
                inspected,
            )
            for component in components
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        samples: list[HealthSample] = [missing(service) for service in missing_services(listed)]
        await at_once(partial(self._sample, samples, workload.spec, is_due), listed)
        return samples

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        found = dict(zip([container.name for container in listed], await self._inspect_all(listed), strict=True))
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
        listed = await self._containers(deployment_id, component)
        await remove_project(self._api, listed, self._project(deployment_id, component), component)
        if remove_images:
            await remove_images_unused(self._api, {container.image for container in listed})

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        """By the names of the volumes, of which those from before they belonged to the deployment's are the
        project's."""
        project = self._project(deployment_id, component)
        prefixes = (volume_prefix(name, component, self._node_id), f"{project}_", f"{project}-")
        await remove_volumes(self._api, prefixes, component)

    async def owned(self) -> Sequence[Owned]:
        listed = await self._api.containers([LABEL_NODE])
        labels = [each.labels for each in listed if {LABEL_DEPLOYMENT, LABEL_COMPONENT} <= each.labels.keys()]
        found = {
            (each[LABEL_NODE], each[LABEL_DEPLOYMENT], each[LABEL_COMPONENT]) for each in labels if each[LABEL_NODE]
        }
        return [Owned(NodeId(node), DeploymentId(what), component) for node, what, component in sorted(found)]

    async def remove_owned(self, item: Owned) -> None:
        labels = {LABEL_NODE: item.node_id, LABEL_DEPLOYMENT: item.deployment_id, LABEL_COMPONENT: item.component}
        listed = await self._api.containers([f"{name}={value}" for name, value in labels.items()])
        project = project_name(item.deployment_id, item.component, item.node_id)
        await remove_project(self._api, listed, project, item.component)

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        found: list[WorkloadProcess] = []
        for each in await self._api.containers([f"{LABEL_NODE}={self._node_id}"]):
            if not each.running or not {LABEL_DEPLOYMENT, LABEL_COMPONENT} <= each.labels.keys():
                continue
            if (before := known.get(each.id)) is not None:
                found.append(before)
                continue
            inspected = await self._inspect(each)
            pid = 0 if inspected is None else int(inspected["State"].get("Pid") or 0)
            if pid:
                deployment, component = each.labels[LABEL_DEPLOYMENT], each.labels[LABEL_COMPONENT]
                found.append(WorkloadProcess(each.id, DeploymentId(deployment), component, each.name, pid))
        return found

    def container_access(self) -> OpensContainers:
        return self

    async def running_containers(self, deployment_id: DeploymentId) -> Sequence[RunningContainer]:
        listed = await self._containers(deployment_id)
        return await self._access.describe(listed, component=LABEL_COMPONENT, service=LABEL_SERVICE)

    async def data_volumes(self) -> Sequence[DataVolume]:
        try:
            unused = {*await self._api.volumes(unused=True)}
            names = await self._api.volumes()
        except EngineRefusal as refusal:
            raise Refused(f"The volumes cannot be listed: {refusal.message}") from refusal
        return [DataVolume(name, name not in unused) for name in names if parse_volume(name) is not None]

    def execute_in(self, container_id: str, target: ExecTarget) -> AbstractAsyncContextManager[ExecSession]:
        return self._access.execute_in(container_id, target)

    async def address_of(self, container_id: str, port: int) -> Endpoint:
        return await self._access.address_of(container_id, port)

    def job_runner(self) -> JobRunner:
        return self._jobs

    # --- looking ----------------------------------------------------------------------------------------------

    def _project(self, deployment_id: DeploymentId, component: str) -> str:
        return project_name(deployment_id, component, self._node_id)

    async def _containers(self, deployment_id: DeploymentId, component: str | None = None) -> list[ListedContainer]:
        """Only this node's: another node may use the same engine for the same deployment."""
        labels = [f"{LABEL_DEPLOYMENT}={deployment_id}", f"{LABEL_NODE}={self._node_id}"]
        return await self._api.containers(labels + ([f"{LABEL_COMPONENT}={component}"] if component else []))

    async def _inspect(self, container: ListedContainer) -> Json | None:
        """None for a container that has just been removed."""
        try:
            return await self._api.inspect(container.id)
        except EngineRefusal:
            return None

    async def _inspect_all(self, listed: Sequence[ListedContainer]) -> list[Json | None]:
        return [await self._inspect(container) for container in listed]

    async def _sample(
        self, samples: list[HealthSample], spec: ComponentSpec, is_due: IsDue, container: ListedContainer
    ) -> None:
        inspected = await self._inspect(container)
        seen = sample(container, inspected)
        if inspected is not None and seen.state is ContainerState.RUNNING:
            if spec.type is ProfileType.CUSTOM and self._images.has_probe(spec):
                seen = await self._images.check(spec, seen, is_due)
            elif has_check(inspected):
                seen = await self._engine.check(self._api, seen, inspected, is_due)
        samples.append(seen)

    # --- acting -----------------------------------------------------------------------------------------------

    async def _start_stopped(
        self, workload: Workload, seen: Sequence[ListedContainer], on_progress: OnProgress
    ) -> bool:
        """Oldest first, because compose creates dependencies first.

        False when one cannot be started: its creation was interrupted, and it has to be created again.
        """
        stopped = [
            container
            for container in reversed(seen)
            if not container.running and not is_done(container, await self._inspect(container))
        ]
        if not stopped:
            return True
        on_progress(Step.STARTING, f"starting {workload.spec.name} again", 0, 0)
        for container in stopped:
            try:
                await self._api.start(container.id)
            except EngineRefusal as refusal:
                log.warning("container start failed, recreating it", why=refusal.message)
                return False
        await self._refuse_exited(workload)
        return True

    async def _pull_images(self, spec: ComponentSpec, project: ComposeProject, on_progress: OnProgress) -> None:
        for image in sorted({service.image for service in project.services if service.image}):
            await pull_if_missing(self._engine, self._api, spec, image, on_progress)

    async def _volumes(self, workload: Workload, project: ComposeProject) -> dict[str, str]:
        """The names of the project's own volumes here. A volume from before they belonged to the deployment's name is
        named after the project, and is used while there is none with the new name."""
        before = self._project(workload.deployment_id, workload.spec.name)
        return {
            volume: await self._api.volume_called(
                volume_name(workload, self._node_id, volume), before=f"{before}_{volume}"
            )
            for volume in (project.volumes if workload.name else ())
        }

    async def _up(self, workload: Workload, on_progress: OnProgress, *, is_new: bool) -> None:
        spec = workload.spec
        project = await self._projects.resolve(workload)
        # An image that was removed in between: the compose tool would pull it past the site.
        await self._pull_images(spec, project, on_progress)
        hidden = secret_environment(spec)
        if steering := sorted(name for name in hidden if steers_the_tool(name)):
            raise create_failed(spec.name, f"{steering[0]} steers the compose tool and cannot hold a secret")
        named_in_containers = [] if interpolates_only(spec) else list(hidden)
        through_arguments = self._engine.compose_secrets(named_in_containers) if named_in_containers else []
        named = named_in_containers if through_arguments is None else []
        on_progress(Step.CONFIGURING, describe_configuration(spec), 0, 0)
        try:
            override = write_override(
                project.folder,
                workload,
                self._node_id,
                project.services,
                variables=self._engine.variables,
                named=named,
                version=project.version,
                volumes=await self._volumes(workload, project),
            )
        except OSError as error:
            raise disk_full(spec.name) from error
        command = [
            *self._engine.compose_command(is_new=is_new),
            *(through_arguments or ()),
            *("--project-name", self._project(workload.deployment_id, spec.name)),
            *("--file", str(project.folder / COMPOSE_FILE), "--file", str(override)),
            *("up", "--detach", "--remove-orphans"),
        ]
        on_progress(Step.NETWORKING, f"networking {spec.name}: {', '.join(project.networks)}", 0, 0)
        environment = compose_environment(self._engine.environment, {**plain_environment(spec), **hidden})
        run = partial(
            child_process.run,
            command,
            environment=environment,
            seconds=spec.timeout_seconds,
            folder=project.folder,
            prestarted=self._engine.prestarted,
        )
        try:
            done = await run()
            if is_transient_start_error(done.errors):
                done = await run()
        except TimeoutError as error:
            message = f"{spec.name} was not started within {spec.timeout_seconds:.0f} s."
            raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error
        except OSError as error:
            raise EngineUnavailable(f"The compose tool cannot be run: {error.strerror}: {command[0]}.") from error
        if done.exit_code != 0:
            await self._refuse_exited(workload, only=ends)  # The tool names it only by its id, if at all.
            reason = meaningful_line(done.errors + "\n" + done.output)
            raise create_failed(spec.name, masked(reason, spec.secret_values.values()))

    async def _refuse_exited(self, workload: Workload, *, only: Callable[[ListedContainer], bool] = bool) -> None:
        """A container that has already failed will not become healthy by waiting."""
        for container in filter(only, await self._containers(workload.deployment_id, workload.spec.name)):
            inspected = None if container.running else await self._inspect(container)
            code = inspected["State"].get("ExitCode") if inspected else 0
            if code:
                message = f"{shown_name(container)} ended with exit code {code} right after its start."
                raise WorkFailed(Code.EXITED, message, source=workload.spec.name)
