"""Runs components on an engine that answers the Docker-compatible API: Podman and Docker, the same code.

A compose component is brought up by the compose tool, a single image by `image_containers`. Everything that looks,
stops or removes goes through the API by label, whichever it was: that is faster, and it works when the component's
files are gone.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from homeport.adapters.runtime import child
from homeport.adapters.runtime.at_once import at_once
from homeport.adapters.runtime.component_fetch import fetch_component
from homeport.adapters.runtime.compose_files import (
    COMPOSE_FILE,
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_DIGEST,
    LABEL_NODE,
    Service,
    archive_folder,
    project_folder,
    project_name,
    read_services,
    write_override,
)
from homeport.adapters.runtime.compose_removal import remove_images_unused, remove_project
from homeport.adapters.runtime.container_engine import ContainerEngine
from homeport.adapters.runtime.engine_api import EngineApi, Json, Listed, Refusal
from homeport.adapters.runtime.failures import create_failed, disk_full, is_stumble, meaningful_line
from homeport.adapters.runtime.image_containers import ImageContainers
from homeport.adapters.runtime.image_pull import pull_if_missing
from homeport.adapters.runtime.observations import (
    combine,
    ends,
    has_check,
    is_done,
    missing_services,
    observed,
    unchecked,
)
from homeport.adapters.runtime.tool_environment import compose_environment, steers_the_tool
from homeport.core.secrets import masked, plain_environment, secret_environment
from homeport.errors import EngineUnavailable, InvalidInput, WorkFailed
from homeport.failpoints import Point, passing
from homeport.ports import Health, Observation, OnProgress, Registry, Workload
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType, Step

log = logging.getLogger("homeport.runtime")

LOG_CONTAINERS_MAX = 100


class ComposeRuntime:
    profile_types: tuple[ProfileType, ...] = (ProfileType.COMPOSE, ProfileType.CUSTOM)

    def __init__(self, engine: ContainerEngine, registry: Registry, node_id: NodeId) -> None:
        self.name = engine.name
        self._engine = engine
        self._registry = registry
        self._node_id = node_id
        self._api = EngineApi(engine.reach)
        self._images = ImageContainers(engine, self._api, node_id)

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
        if not folder.is_dir():
            on_progress(Step.FETCHING, f"fetching {spec.name} {spec.revision}", 0, 0)
            await fetch_component(self._registry, spec, folder)
        for image in sorted({service.image for service in self._services(workload) if service.image}):
            await pull_if_missing(self._engine, self._api, spec, image, on_progress)

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
            on_progress(Step.STOPPING, f"stopping the running {spec.name}", 0, 0)
            await remove_project(self._api, seen, self._project(workload.deployment_id, spec.name), spec.name)
            passing(Point.RUNTIME_AFTER_STOP)
        on_progress(Step.CREATING, f"creating {spec.name}", 0, 0)
        if spec.type is ProfileType.CUSTOM:
            await self._images.create(workload, self._project(workload.deployment_id, spec.name))
        else:
            await self._up(workload)
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

    async def health(self, workload: Workload) -> Health:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        if not listed:
            return Health(False, f"{workload.spec.name} has no containers")
        if missing := missing_services(listed):
            return Health(False, f"{missing[0]} has no container")
        verdicts: dict[str, Health] = {}
        await at_once(partial(self._check, verdicts), listed)
        verdict = combine([(container.name, verdicts[container.id]) for container in listed])
        if verdict.healthy and workload.spec.type is ProfileType.CUSTOM:
            return await self._images.probe(workload.spec, listed[0].id) or verdict
        return verdict

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        listed = await self._containers(workload.deployment_id, workload.spec.name)
        for container in sorted(listed, key=lambda container: container.name)[:LOG_CONTAINERS_MAX]:
            inspected = await self._inspect(container)
            if inspected is None:
                continue
            framed = not inspected["Config"].get("Tty")
            async for chunk in self._api.logs(container.id, tail=tail, framed=framed):
                yield chunk

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        listed = await self._containers(deployment_id, component)
        await remove_project(self._api, listed, self._project(deployment_id, component), component)
        if remove_images:
            await remove_images_unused(self._api, {container.image for container in listed})

    # --- looking ----------------------------------------------------------------------------------------------

    def _project(self, deployment_id: DeploymentId, component: str) -> str:
        return project_name(deployment_id, component, self._node_id)

    def _services(self, workload: Workload) -> tuple[Service, ...]:
        spec = workload.spec
        try:
            return read_services(project_folder(archive_folder(workload)), spec)
        except (InvalidInput, OSError) as error:
            message = f"The component {spec.name} {spec.revision} cannot be used: {error}"
            raise WorkFailed(Code.COMPONENT_FETCH_FAILED, message, source=spec.name) from error

    async def _containers(self, deployment_id: DeploymentId, component: str | None = None) -> list[Listed]:
        """Ours alone: another node may use the same engine for the same deployment."""
        labels = [f"{LABEL_DEPLOYMENT}={deployment_id}", f"{LABEL_NODE}={self._node_id}"]
        return await self._api.containers(labels + ([f"{LABEL_COMPONENT}={component}"] if component else []))

    async def _inspect(self, container: Listed) -> Json | None:
        """None for a container that has just gone."""
        try:
            return await self._api.inspect(container.id)
        except Refusal:
            return None

    async def _inspect_all(self, listed: Sequence[Listed]) -> list[Json | None]:
        return [await self._inspect(container) for container in listed]

    async def _check(self, verdicts: dict[str, Health], container: Listed) -> None:
        inspected = await self._inspect(container)
        if inspected is None:
            verdicts[container.id] = Health(False, "it is gone")
        elif inspected["State"].get("Paused"):
            verdicts[container.id] = Health(False, "it is paused")
        elif is_done(container, inspected):
            verdicts[container.id] = Health(True)
        elif not container.running:
            verdicts[container.id] = Health(False, f"it ended with exit code {inspected['State'].get('ExitCode')}")
        elif ends(container):
            verdicts[container.id] = Health(None, "it has not ended yet")
        elif not has_check(inspected):
            verdicts[container.id] = unchecked(container.id, inspected)
        else:
            verdicts[container.id] = await self._engine.check(self._api, container.id, inspected)

    # --- acting -----------------------------------------------------------------------------------------------

    async def _start_stopped(self, workload: Workload, seen: Sequence[Listed], on_progress: OnProgress) -> bool:
        """Oldest first, for compose creates what others depend on first.

        False when one cannot be started: it was cut off while it was being made, and has to be made anew.
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
            except Refusal as refusal:
                log.warning("container cannot be started, it is made anew", extra={"why": refusal.message})
                return False
        await self._refuse_exited(workload)
        return True

    async def _up(self, workload: Workload) -> None:
        spec = workload.spec
        project = project_folder(archive_folder(workload))
        hidden = secret_environment(spec)
        if steering := sorted(name for name in hidden if steers_the_tool(name)):
            raise create_failed(spec.name, f"{steering[0]} steers the compose tool and cannot hold a secret")
        through_arguments = self._engine.compose_secrets(list(hidden)) if hidden else []
        named = list(hidden) if through_arguments is None else []
        try:
            override = write_override(project, workload, self._node_id, self._services(workload), named)
        except OSError as error:
            raise disk_full(spec.name) from error
        command = [
            *self._engine.compose_command(),
            *(through_arguments or ()),
            *("--project-name", self._project(workload.deployment_id, spec.name)),
            *("--file", str(project / COMPOSE_FILE), "--file", str(override)),
            *("up", "--detach", "--remove-orphans"),
        ]
        environment = compose_environment(self._engine.environment, {**plain_environment(spec), **hidden})
        run = partial(child.run, command, environment=environment, seconds=spec.timeout_seconds, folder=project)
        try:
            done = await run()
            if is_stumble(done.errors):
                done = await run()
        except TimeoutError as error:
            message = f"{spec.name} was not started within {spec.timeout_seconds:.0f} s."
            raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error
        except OSError as error:
            raise EngineUnavailable(f"The compose tool cannot be run: {error.strerror}: {command[0]}.") from error
        if done.exit_code != 0:
            await self._refuse_exited(workload, only=ends)  # The tool names it by its id, if at all.
            reason = meaningful_line(done.errors + "\n" + done.output)
            raise create_failed(spec.name, masked(reason, spec.secret_values.values()))

    async def _refuse_exited(self, workload: Workload, *, only: Callable[[Listed], bool] = bool) -> None:
        """A container that has failed by now will not become healthy by waiting."""
        for container in filter(only, await self._containers(workload.deployment_id, workload.spec.name)):
            inspected = None if container.running else await self._inspect(container)
            code = inspected["State"].get("ExitCode") if inspected else 0
            if code:
                message = f"{container.name} ended with exit code {code} right after its start."
                raise WorkFailed(Code.EXITED, message, source=workload.spec.name)
