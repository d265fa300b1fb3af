"""A single image as one container, through the Docker-compatible API: a `custom` component with an image.

The container has the same labels as those of a compose component, so everything after its creation is done by the
same code. Values of secrets go over the socket: they are on no command line and in no file.
"""

from functools import partial

from homeport.adapters.runtime.compose.files import (
    SECRETS_FOLDER,
    container_labels,
    describe_configuration,
    volume_name,
    write_secret_files,
)
from homeport.adapters.runtime.custom_spec import environment_of, read_spec, require_allowed
from homeport.adapters.runtime.docker_api.client import EngineApi, EngineRefusal, Json
from homeport.adapters.runtime.docker_api.engine import ContainerEngine
from homeport.adapters.runtime.docker_api.exec_check import run_inside
from homeport.adapters.runtime.docker_api.gpus import gpu_access, with_gpus
from homeport.adapters.runtime.docker_api.image_pull import pull_if_missing
from homeport.adapters.runtime.failures import create_failed, is_transient_start_error
from homeport.adapters.runtime.health.probes import checked, run_probe
from homeport.core.model.custom import CommandProbe, CustomKind, CustomSpec, Port
from homeport.core.model.deployment import ComponentSpec
from homeport.core.model.health import HealthSample
from homeport.core.node.permissions import Permissions
from homeport.core.secrets import masked, secret_environment, secret_files
from homeport.ports import IsDue, OnProgress, Workload
from homeport.vocabulary import NodeId, Step

NAME_TAKEN = 409


class ImageContainers:
    def __init__(self, engine: ContainerEngine, api: EngineApi, node_id: NodeId, permissions: Permissions) -> None:
        self._engine = engine
        self._api = api
        self._node_id = node_id
        self._permissions = permissions

    async def prepare(self, spec: ComponentSpec, on_progress: OnProgress) -> None:
        custom = read_spec(spec, CustomKind.IMAGE)
        require_allowed(spec, custom, self._permissions)
        await pull_if_missing(self._engine, self._api, spec, custom.image, on_progress)

    async def create(self, workload: Workload, name: str, on_progress: OnProgress) -> None:
        """Creates and starts the container. The name is made from our ids, so an existing one is removed."""
        spec = workload.spec
        on_progress(Step.CONFIGURING, describe_configuration(spec), 0, 0)
        content = await self._content(workload, name)
        on_progress(Step.NETWORKING, _describe_network(spec), 0, 0)
        try:
            try:
                made = await self._api.create(name, content)
            except EngineRefusal as refusal:
                if not _is_taken(refusal):
                    raise
                await self._api.remove_container(name)
                made = await self._api.create(name, content)
            await self._start(made)
        except EngineRefusal as refusal:
            raise create_failed(spec.name, masked(refusal.message, spec.secret_values.values())) from refusal

    def has_probe(self, spec: ComponentSpec) -> bool:
        return read_spec(spec, CustomKind.IMAGE).probe is not None

    async def check(self, spec: ComponentSpec, seen: HealthSample, is_due: IsDue) -> HealthSample:
        """By the description's own probe. Not left to the engine: Podman's API cannot take a command with spaces in
        its arguments, and runs no checks by itself."""
        custom = read_spec(spec, CustomKind.IMAGE)
        assert custom.probe is not None, "only asked where has_probe() is true"
        seconds = custom.rules.timeout_seconds
        if isinstance(custom.probe, CommandProbe):
            run = partial(run_inside, self._api, seen.run.id, custom.probe.command, seconds)
        else:
            run = partial(run_probe, custom.probe, seconds=seconds, environment={})
        return await checked(seen, custom.rules, is_due, run)

    async def _start(self, container: str) -> None:
        """One that cannot be started is removed again: it has not run, so there is nothing to inspect."""
        try:
            await self._start_surely(container)
        except EngineRefusal:
            await self._api.remove_container(container)
            raise

    async def _start_surely(self, container: str) -> None:
        try:
            await self._api.start(container)
        except EngineRefusal as refusal:
            if not is_transient_start_error(refusal.message):
                raise
            await self._api.start(container)

    async def _mounts(self, workload: Workload, name: str) -> list[Json]:
        """Data volumes belong to the deployment's name; one from before that keeps the container's."""
        found = []
        for mount in read_spec(workload.spec, CustomKind.IMAGE).mounts:
            source = mount.source
            if mount.is_volume:
                before = f"{name}-{source}"
                after = volume_name(workload, self._node_id, source) if workload.name else before
                source = await self._api.volume_called(after, before=before)
            kind = "volume" if mount.is_volume else "bind"
            found.append({"Type": kind, "Source": source, "Target": mount.target, "ReadOnly": mount.read_only})
        return found

    async def _content(self, workload: Workload, name: str) -> Json:
        spec, custom = workload.spec, read_spec(workload.spec, CustomKind.IMAGE)
        try:
            files = write_secret_files(workload.folder / SECRETS_FOLDER, secret_files(spec))
        except OSError as error:
            raise create_failed(spec.name, str(error)) from error
        mounts = await self._mounts(workload, name)
        mounts += [
            {"Type": "bind", "Source": str(path), "Target": target, "ReadOnly": True}
            for target, path in files.items()
        ]
        emptied = dict.fromkeys(self._engine.leaking_variables, "")
        environment = {
            **emptied,
            **self._engine.variables,
            **environment_of(spec, custom),
            **secret_environment(spec),
        }
        content: Json = {
            "Image": custom.image,
            "Env": [f"{variable}={value}" for variable, value in environment.items()],
            "Labels": container_labels(workload, self._node_id),
            "ExposedPorts": {f"{port.container}/{port.protocol}": {} for port in custom.ports},
            "HostConfig": {
                "PortBindings": _bindings(custom.ports),
                "Mounts": mounts,
                **({"NetworkMode": "host"} if custom.host_network else {}),
            },
        }
        access = gpu_access(custom.gpus, self._engine.gpu_makers)
        return with_gpus(content | _given(custom), access, self._engine.nvidia_options)


def _describe_network(spec: ComponentSpec) -> str:
    custom = read_spec(spec, CustomKind.IMAGE)
    ports = ", ".join(f"{port.host} to {port.container}/{port.protocol}" for port in custom.ports)
    if custom.host_network:
        return f"networking {spec.name}: the machine's own network"
    return f"networking {spec.name}: bridge" + (f", ports {ports}" if ports else "")


def _given(custom: CustomSpec) -> Json:
    """Only what the description sets; the rest is the image's."""
    content: Json = {}
    if custom.command:
        content["Entrypoint"] = list(custom.command)
    if custom.command or custom.args:
        content["Cmd"] = list(custom.args)
    if custom.workdir:
        content["WorkingDir"] = custom.workdir
    if custom.probe is not None:
        # Ours replaces the image's.
        content["Healthcheck"] = {"Test": ["NONE"]}
    return content


def _bindings(ports: tuple[Port, ...]) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in ports:
        binding = {"HostIp": port.address, "HostPort": str(port.host)}
        bindings.setdefault(f"{port.container}/{port.protocol}", []).append(binding)
    return bindings


def _is_taken(refusal: EngineRefusal) -> bool:
    """Podman answers 500, with a message that says so."""
    return refusal.status == NAME_TAKEN or "is already in use" in refusal.message
