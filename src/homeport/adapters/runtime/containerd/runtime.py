"""containerd, through its own client `ctr`: single images (`custom` components), and no more than that.

Compose needs a network and a tool that containerd does not provide, so compose components are refused by type. What
runs is on the machine's own network. Everything is in the namespace `homeport`; our state is in labels of the
containers, so that a node that lost its files finds them again. A container keeps its id when it is started again:
only its task, the process, is new.
"""

import json
import os
import shutil
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from anyio.to_thread import run_sync

from homeport.adapters.files.file_events import FileEvents
from homeport.adapters.runtime.compose.files import (
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_DIGEST,
    LABEL_NODE,
    SECRETS_FOLDER,
    container_labels,
    volume_name,
    write_secret_files,
)
from homeport.adapters.runtime.containerd.arguments import (
    container_name,
    create_arguments,
    folder_mounts,
    full_reference,
    refuse_impossible,
)
from homeport.adapters.runtime.containerd.ctr import ContainerTask, Ctr, CtrRefusal
from homeport.adapters.runtime.containerd.images import entrypoint, pull_if_missing, remove_unused
from homeport.adapters.runtime.containerd.tasks import LABEL_EXIT, Tasks
from homeport.adapters.runtime.custom_spec import environment_of, read_spec, require_allowed
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.failures import create_failed
from homeport.adapters.runtime.health.probes import checked, run_probe
from homeport.adapters.runtime.process import program_keeper
from homeport.adapters.runtime.programs.follow_file import follow_file
from homeport.adapters.runtime.programs.tail import last_lines
from homeport.core.data import volume_prefix
from homeport.core.model.custom import CommandProbe, CustomKind, CustomSpec, Mount
from homeport.core.model.health import ContainerRun, ContainerState, HealthSample
from homeport.core.secrets import masked, secret_environment, secret_files
from homeport.errors import WorkFailed
from homeport.lazy_dataclass import dataclass
from homeport.ports import Container, IsDue, Observation, OnProgress, OutputLine, Owned, Workload, WorkloadProcess
from homeport.vocabulary import Code, DeploymentId, Digest, NodeId, ProfileType, Step


@dataclass(frozen=True, slots=True)
class ContainerdContainer:
    """One of our containers, and its task if it has one."""

    id: str
    image: str
    labels: Mapping[str, str]
    created_at: str
    task: ContainerTask | None

    @property
    def component(self) -> str:
        return self.labels.get(LABEL_COMPONENT, "")

    @property
    def is_running(self) -> bool:
        return self.task is not None and self.task.status == "RUNNING"

    @property
    def task_id(self) -> str:
        """Identifies the task: the container keeps its id and creation time when it is started again."""
        if self.task is None:
            return ""
        try:
            return f"{self.task.pid}-{program_keeper.start_time(self.task.pid)}"
        except OSError:
            return str(self.task.pid)

    @property
    def exit_code(self) -> int | None:
        said = self.labels.get(LABEL_EXIT, "")
        return int(said) if self.task is None and said.isdigit() else None


class ContainerdRuntime:
    name = "containerd"
    profile_types: tuple[ProfileType, ...] = (ProfileType.CUSTOM,)

    def __init__(self, data: Path, options: EngineOptions, node_id: NodeId) -> None:
        self._folder = data.absolute() / "containerd"
        self._node_id = node_id
        self._permissions = options.permissions
        self._ctr = Ctr(options)
        self._mirror = options.mirror
        self._variables = options.variables
        self._tasks = Tasks(self._ctr)
        self._file_events = FileEvents()

    async def start(self) -> None:
        self._ctr.require()
        await self._ctr.version()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def close(self) -> None:
        """The daemon is not ours, and the containers belong to it."""

    async def version(self) -> str:
        return await self._ctr.version()

    async def prepare(self, workload: Workload, on_progress: OnProgress) -> None:
        custom = self._read(workload)
        require_allowed(workload.spec, custom, self._permissions)
        refuse_impossible(workload.spec.name, custom)
        await pull_if_missing(self._ctr, self._mirror, workload.spec, custom.image, on_progress)

    async def apply(self, workload: Workload, on_progress: OnProgress) -> None:
        spec = workload.spec
        await self.prepare(workload, on_progress)
        seen = await self._find(workload.deployment_id, spec.name)
        if [found.labels.get(LABEL_DIGEST) for found in seen] == [spec.digest]:
            if seen[0].is_running:
                return
            if await self._start_again(workload, seen[0], on_progress):
                return
        if seen:
            on_progress(Step.STOPPING, f"stopping the running {spec.name}", 0, 0)
            await self._remove_all(seen, spec.name)
        on_progress(Step.CREATING, f"creating {spec.name}", 0, 0)
        with _translated(workload):
            await self._launch(workload)

    async def observe(self, deployment_id: DeploymentId) -> Sequence[Observation]:
        found = await self._find(deployment_id)
        return [
            _observation(component, [each for each in found if each.component == component])
            for component in sorted({each.component for each in found})
        ]

    async def sample_health(self, workload: Workload, is_due: IsDue) -> Sequence[HealthSample]:
        spec, custom = workload.spec, self._read(workload)
        found = await self._find(workload.deployment_id, spec.name)
        if not found:
            return ()
        seen = HealthSample(spec.name, ContainerRun(f"{found[0].id}/{found[0].task_id}"))
        if not found[0].is_running:
            code = found[0].exit_code
            message = "" if code is not None else _why_not_running(found[0])
            return (replace(seen, state=ContainerState.STOPPED, exit_code=code, message=message),)
        if custom.probe is None:
            return (seen,)
        seconds = custom.rules.timeout_seconds
        if isinstance(custom.probe, CommandProbe):
            run = partial(self._tasks.execute, found[0].id, custom.probe.command, seconds=seconds)
        else:
            run = partial(run_probe, custom.probe, seconds=seconds, environment={})
        return (await checked(seen, custom.rules, is_due, run),)

    async def logs(self, workload: Workload, *, tail: int) -> AsyncIterator[bytes]:
        for found in await self._find(workload.deployment_id, workload.spec.name):
            log = self._log(found.id)
            for line in last_lines((log.with_name(log.name + ".1"), log), tail):
                yield line

    async def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        async for lines in follow_file(self._log(container.id), resume, self._file_events):
            yield lines

    async def remove(self, deployment_id: DeploymentId, component: str, *, remove_images: bool) -> None:
        seen = await self._find(deployment_id, component)
        await self._remove_all(seen, component)
        if remove_images:
            await remove_unused(self._ctr, {found.image for found in seen})

    async def remove_data(self, deployment_id: DeploymentId, component: str, *, name: str) -> None:
        volumes = self._folder / "volumes"
        named = f"{volume_prefix(name, component, self._node_id)}data"
        for folder in (volumes / named, volumes / deployment_id / component):
            try:
                if folder.is_dir():
                    await run_sync(shutil.rmtree, folder)
            except OSError as error:
                message = f"The data of {component} could not be removed: {error.strerror or error}"
                raise WorkFailed(Code.REMOVE_FAILED, message, source=component) from error

    async def owned(self) -> Sequence[Owned]:
        described = [await self._describe(container, None) for container in await self._ctr.containers({})]
        labels = [each.labels for each in described if each is not None]
        found = {
            (each[LABEL_NODE], each[LABEL_DEPLOYMENT], each[LABEL_COMPONENT])
            for each in labels
            if {LABEL_NODE, LABEL_DEPLOYMENT, LABEL_COMPONENT} <= each.keys()
        }
        return [Owned(NodeId(node), DeploymentId(what), component) for node, what, component in sorted(found)]

    async def remove_owned(self, item: Owned) -> None:
        seen = await self._find(item.deployment_id, item.component, item.node_id)
        await self._remove_all(seen, item.component)

    async def processes(self, known: Mapping[str, WorkloadProcess]) -> Sequence[WorkloadProcess]:
        found: list[WorkloadProcess] = []
        ids = await self._ctr.containers({LABEL_NODE: str(self._node_id)})
        tasks = await self._ctr.tasks() if ids else {}
        for container in ids:
            task = tasks.get(container)
            if task is None or task.status != "RUNNING":
                continue
            before = known.get(container)
            if before is not None and before.pid == task.pid:
                found.append(before)
            elif (seen := await self._describe(container, task)) is not None and LABEL_DEPLOYMENT in seen.labels:
                deployment = DeploymentId(seen.labels[LABEL_DEPLOYMENT])
                found.append(WorkloadProcess(container, deployment, seen.component, container, task.pid))
        return found

    # --- looking ----------------------------------------------------------------------------------------------

    def _read(self, workload: Workload) -> CustomSpec:
        spec = workload.spec
        if spec.type not in self.profile_types:
            message = (
                f"containerd runs single images (type custom); {spec.name} is of type {spec.type}. "
                "Use a node with Podman or Docker."
            )
            raise WorkFailed(Code.UNSUPPORTED_TYPE, message, source=spec.name)
        return read_spec(spec, CustomKind.IMAGE)

    async def _find(
        self, deployment_id: DeploymentId, component: str | None = None, node_id: NodeId | None = None
    ) -> list[ContainerdContainer]:
        """Only this node's, unless another node is named. An ended task is deleted, and its exit code is recorded on
        its container."""
        labels = {LABEL_DEPLOYMENT: str(deployment_id), LABEL_NODE: str(node_id or self._node_id)}
        if component is not None:
            labels[LABEL_COMPONENT] = component
        ids = await self._ctr.containers(labels)
        tasks = await self._ctr.tasks() if ids else {}
        for container in ids:
            if container in tasks and tasks[container].status == "STOPPED":
                await self._tasks.settle(container)
                del tasks[container]
        described = [await self._describe(container, tasks.get(container)) for container in ids]
        return sorted(filter(None, described), key=lambda found: found.id)

    async def _describe(self, container: str, task: ContainerTask | None) -> ContainerdContainer | None:
        """None for a container that has just been removed."""
        try:
            details = json.loads(await self._ctr.call("containers", "info", container))
        except CtrRefusal:
            return None
        labels = details.get("Labels") or {}
        return ContainerdContainer(
            container, str(details.get("Image", "")), labels, str(details.get("CreatedAt", "")), task
        )

    def _log(self, container: str) -> Path:
        return self._folder / f"{container}.log"

    # --- acting -----------------------------------------------------------------------------------------------

    async def _launch(self, workload: Workload) -> None:
        spec, custom = workload.spec, self._read(workload)
        name = container_name(workload.deployment_id, spec.name, self._node_id)
        container = f"{name}-{uuid.uuid4().hex[:8]}"
        labels = container_labels(workload, self._node_id)
        command = [*custom.command, *custom.args]
        if custom.args and not custom.command:
            command = [*await entrypoint(self._ctr, spec.name, custom.image), *custom.args]
        with _secrets(spec.name, secret_environment(spec)) as descriptor:
            options = create_arguments(
                custom,
                labels=labels,
                environment={**self._variables, **environment_of(spec, custom)},
                mounts=self._mounts(workload, custom),
                environment_file=None if descriptor is None else f"/proc/self/fd/{descriptor}",
            )
            await self._ctr.call(
                *("containers", "create", *options, "--", full_reference(custom.image), container, *command),
                seconds=spec.timeout_seconds,
                pass_fds=() if descriptor is None else (descriptor,),
            )
        try:
            await self._start(workload, container)
        except (CtrRefusal, TimeoutError):
            # It has not run, so there is no output to show.
            await self._tasks.remove_container(container)
            raise

    async def _start(self, workload: Workload, container: str) -> None:
        """Raises EXITED for a container that has already failed: it will not become healthy by waiting."""
        keeper = quote(str(program_keeper.__file__), safe="/")
        log = f"binary://{quote(sys.executable)}?{keeper}={quote(str(self._log(container)), safe='/')}"
        await self._ctr.call(
            "tasks", "start", "--detach", "--log-uri", log, container, seconds=workload.spec.timeout_seconds
        )
        found = await self._find(workload.deployment_id, workload.spec.name)
        ended = next((each.exit_code for each in found if each.id == container), None)
        if ended:
            message = f"{workload.spec.name} ended with exit code {ended} right after its start."
            raise WorkFailed(Code.EXITED, message, source=workload.spec.name)

    async def _start_again(self, workload: Workload, found: ContainerdContainer, on_progress: OnProgress) -> bool:
        """False when it cannot be started: its creation was interrupted, and it has to be created again."""
        on_progress(Step.STARTING, f"starting {workload.spec.name} again", 0, 0)
        try:
            await self._tasks.end(found.id)
            await self._start(workload, found.id)
        except (CtrRefusal, TimeoutError):
            return False
        return True

    async def _remove_all(self, seen: Sequence[ContainerdContainer], component: str) -> None:
        try:
            for found in seen:
                if found.is_running:
                    await self._tasks.stop(found.id)
                await self._tasks.remove_container(found.id)
                for log in self._folder.glob(f"{found.id}.log*"):
                    log.unlink(missing_ok=True)
        except (CtrRefusal, TimeoutError) as error:
            raise WorkFailed(
                Code.REMOVE_FAILED, f"{component} could not be removed: {error}", source=component
            ) from error

    def _mounts(self, workload: Workload, custom: CustomSpec) -> list[Mount]:
        spec = workload.spec
        volumes = self._folder / "volumes" / workload.deployment_id / spec.name
        named = self._folder / "volumes" / volume_name(workload, self._node_id, "data")
        if workload.name and (named.is_dir() or not volumes.is_dir()):
            volumes = named  # Data belongs to the deployment's name; data from before that is used where it is.
        try:
            mounts = folder_mounts(custom, volumes)
            for mount in custom.mounts:
                if mount.is_volume:
                    (volumes / mount.source).mkdir(parents=True, exist_ok=True)
            files = write_secret_files(workload.folder / SECRETS_FOLDER, secret_files(spec))
        except OSError as error:
            raise create_failed(spec.name, str(error)) from error
        return mounts + [Mount(str(path), target, read_only=True) for target, path in files.items()]


@contextmanager
def _secrets(component: str, environment: Mapping[str, str]) -> Iterator[int | None]:
    """A memory-only file from which ctr reads the variables: they are on no command line."""
    if not environment:
        yield None
        return
    for name, value in environment.items():
        if "\n" in value:
            reason = f"{name} is a secret of several lines, which containerd takes only as a file"
            raise create_failed(component, reason)
    descriptor = os.memfd_create("environment")
    try:
        os.write(descriptor, "".join(f"{name}={value}\n" for name, value in environment.items()).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _translated(workload: Workload) -> Iterator[None]:
    spec = workload.spec
    try:
        yield
    except CtrRefusal as refusal:
        raise create_failed(spec.name, masked(refusal.message, spec.secret_values.values())) from refusal
    except TimeoutError as error:
        message = f"{spec.name} was not started within {spec.timeout_seconds:.0f} s."
        raise WorkFailed(Code.TIMEOUT, message, source=spec.name) from error


def _observation(component: str, found: Sequence[ContainerdContainer]) -> Observation:
    digests = {each.labels.get(LABEL_DIGEST) for each in found}
    digest = digests.pop() if len(digests) == 1 else None
    return Observation(
        component=component,
        digest=Digest(digest) if digest else None,
        containers=tuple(
            Container(each.id, each.id, each.is_running, exit_code=each.exit_code, started_at=each.created_at)
            for each in found
        ),
    )


def _why_not_running(found: ContainerdContainer) -> str:
    if found.task is not None:
        return f"it is {found.task.status.lower()}"
    return f"it ended with exit code {'unknown' if found.exit_code is None else found.exit_code}"
