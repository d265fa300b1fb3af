"""A single image as one container, through the Docker-compatible API: what a `custom` component with an image is.

The container has the labels that a compose component's containers have, so everything after its creation is done by
the same code. Values of secrets go over the socket: they are on no command line and in no file.
"""

from functools import partial
from typing import Any

from homeport.adapters.runtime.compose_files import (
    LABEL_COMPONENT,
    LABEL_DEPLOYMENT,
    LABEL_DIGEST,
    LABEL_NODE,
    SECRETS_FOLDER,
    write_secret_files,
)
from homeport.adapters.runtime.container_engine import ContainerEngine
from homeport.adapters.runtime.custom_spec import environment_of, read_spec
from homeport.adapters.runtime.engine_api import EngineApi, Json, Refusal
from homeport.adapters.runtime.failures import create_failed, is_stumble
from homeport.adapters.runtime.image_pull import pull_if_missing
from homeport.adapters.runtime.probe_command import run_inside
from homeport.adapters.runtime.probes import Histories, run_probe
from homeport.core.model.custom import CommandProbe, CustomSpec, Kind, Mount, Port
from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import masked, secret_environment, secret_files
from homeport.ports import Health, OnProgress, Workload
from homeport.vocabulary import NodeId

NAME_TAKEN = 409


class ImageContainers:
    def __init__(self, engine: ContainerEngine, api: EngineApi, node_id: NodeId) -> None:
        self._engine = engine
        self._api = api
        self._node_id = node_id
        self._checks = Histories()

    async def prepare(self, spec: ComponentSpec, on_progress: OnProgress) -> None:
        custom = read_spec(spec, Kind.IMAGE)
        await pull_if_missing(self._engine, self._api, spec, custom.image, on_progress)

    async def create(self, workload: Workload, name: str) -> None:
        """Makes and starts the container. The name is made from ids of ours, so whoever has it has to go."""
        spec = workload.spec
        content = self._content(workload, name)
        try:
            try:
                made = await self._api.create(name, content)
            except Refusal as refusal:
                if not _is_taken(refusal):
                    raise
                await self._api.remove_container(name)
                made = await self._api.create(name, content)
            await self._start(made)
        except Refusal as refusal:
            raise create_failed(spec.name, masked(refusal.message, spec.secret_values.values())) from refusal

    async def probe(self, spec: ComponentSpec, container: str) -> Health | None:
        """The description's own check, if it has one, run now if it is due. Not left to the engine: Podman's API
        cannot take a command whose words have spaces, and runs no check by itself."""
        custom = read_spec(spec, Kind.IMAGE)
        if custom.probe is None:
            return None
        seconds = custom.rules.timeout_seconds
        if isinstance(custom.probe, CommandProbe):
            check = partial(run_inside, self._api, container, custom.probe.command, seconds)
        else:
            check = partial(run_probe, custom.probe, seconds=seconds, environment={})
        return await self._checks.check(container, custom.rules, check)

    async def _start(self, container: str) -> None:
        """One that cannot be started is taken away again: it has not run, and has nothing to tell."""
        try:
            await self._start_surely(container)
        except Refusal:
            await self._api.remove_container(container)
            raise

    async def _start_surely(self, container: str) -> None:
        try:
            await self._api.start(container)
        except Refusal as refusal:
            if not is_stumble(refusal.message):
                raise
            await self._api.start(container)

    def _content(self, workload: Workload, name: str) -> Json:
        spec, custom = workload.spec, read_spec(workload.spec, Kind.IMAGE)
        try:
            files = write_secret_files(workload.folder / SECRETS_FOLDER, secret_files(spec))
        except OSError as error:
            raise create_failed(spec.name, str(error)) from error
        mounts = [_mount(mount, name) for mount in custom.mounts]
        mounts += [
            {"Type": "bind", "Source": str(path), "Target": target, "ReadOnly": True}
            for target, path in files.items()
        ]
        environment = {**environment_of(spec, custom), **secret_environment(spec)}
        content: Json = {
            "Image": custom.image,
            "Env": [f"{variable}={value}" for variable, value in environment.items()],
            "Labels": {
                LABEL_DEPLOYMENT: workload.deployment_id,
                LABEL_COMPONENT: spec.name,
                LABEL_DIGEST: spec.digest,
                LABEL_NODE: self._node_id,
            },
            "ExposedPorts": {f"{port.container}/{port.protocol}": {} for port in custom.ports},
            "HostConfig": {
                "PortBindings": _bindings(custom.ports),
                "Mounts": mounts,
                **({"NetworkMode": "host"} if custom.host_network else {}),
            },
        }
        return content | _given(custom)


def _given(custom: CustomSpec) -> Json:
    """Only what the description says; the rest is the image's."""
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


def _mount(mount: Mount, name: str) -> dict[str, Any]:
    source = f"{name}-{mount.source}" if mount.is_volume else mount.source
    kind = "volume" if mount.is_volume else "bind"
    return {"Type": kind, "Source": source, "Target": mount.target, "ReadOnly": mount.read_only}


def _bindings(ports: tuple[Port, ...]) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in ports:
        binding = {"HostIp": port.address, "HostPort": str(port.host)}
        bindings.setdefault(f"{port.container}/{port.protocol}", []).append(binding)
    return bindings


def _is_taken(refusal: Refusal) -> bool:
    """Podman answers 500, and says so in words."""
    return refusal.status == NAME_TAKEN or "is already in use" in refusal.message
