"""Opens the configured runtime of a node, or detects which one this machine has."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from homeport.adapters.runtime.by_type import RuntimeByType
from homeport.adapters.runtime.compose.runtime import ComposeRuntime
from homeport.adapters.runtime.docker.engine import DockerEngine
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.adapters.runtime.fake import NullRuntime
from homeport.adapters.runtime.helm.on_podman import HelmOnPodman
from homeport.adapters.runtime.podman.engine import PodmanEngine
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.core.model.engines import AUTO, ENGINES, RUNTIMES
from homeport.errors import EngineUnavailable, InvalidInput
from homeport.ports import Registry, Runtime
from homeport.vocabulary import NodeId

if TYPE_CHECKING:
    # Few machines use these: each is loaded where it is, and a node stays small.
    from homeport.adapters.runtime.containerd.runtime import ContainerdRuntime  # noqa: F401
    from homeport.adapters.runtime.helm.cluster import HelmInCluster  # noqa: F401

INSTALL_HINT = (
    "Install Podman (Debian: apt-get install podman runc) or Docker and start it; "
    "homeport doctor  says what is missing, and  --runtime process  runs native programs without either."
)


async def open_runtime(
    kind: str, data: Path, registry: Registry, node_id: NodeId, *, options: EngineOptions | None = None
) -> Runtime:
    """A started runtime; the caller closes it. Raises EngineUnavailable with a sentence that says what to do.

    `options` defaults to the environment of this process, and nothing else.
    """
    chosen = options or EngineOptions(environment=dict(os.environ))
    if kind == AUTO:
        return await _open_first(data, registry, node_id, chosen)
    runtime = _make(kind, data, registry, node_id, chosen)
    try:
        await runtime.start()
    except BaseException:
        await runtime.close()
        raise
    return runtime


async def _open_first(data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    reasons = []
    for kind in (name for name, engine in ENGINES.items() if engine.is_found):
        try:
            return await open_runtime(kind, data, registry, node_id, options=options)
        except EngineUnavailable as error:
            reasons.append(f"{kind}: {error}")
    raise EngineUnavailable(f"No container engine works here. {' '.join(reasons)}", hint=INSTALL_HINT)


def _make(kind: str, data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    if options.kubeconfig is not None and kind != "null":
        cluster = _loaded("helm.cluster", "HelmInCluster")(
            options.kubeconfig, data, registry, node_id, options.environment, variables=options.variables
        )
        return RuntimeByType(_make(kind, data, registry, node_id, replace(options, kubeconfig=None)), cluster)
    if kind not in MAKERS:
        raise InvalidInput(f'There is no runtime "{kind}".', hint=f"Choose one of {', '.join(RUNTIMES)}.")
    return MAKERS[kind](data, registry, node_id, options)


def _podman(data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    engine = PodmanEngine(data, options)
    return RuntimeByType(
        ComposeRuntime(engine, registry, node_id, options.permissions),
        HelmOnPodman(engine, registry, node_id, options.permissions),
    )


def _docker(data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    return ComposeRuntime(DockerEngine(options), registry, node_id, options.permissions)


def _loaded(module: str, name: str) -> Any:
    return getattr(import_module(f"homeport.adapters.runtime.{module}"), name)


MAKERS: Mapping[str, Callable[[Path, Registry, NodeId, EngineOptions], Runtime]] = {
    "podman": _podman,
    "docker": _docker,
    "containerd": lambda data, registry, node_id, options: _loaded("containerd.runtime", "ContainerdRuntime")(
        data, options, node_id
    ),
    "process": lambda data, registry, node_id, options: ProcessRuntime(data, options.environment, options.variables),
    "null": lambda data, registry, node_id, options: NullRuntime(data),
}
"""The factory of each row of `core.model.engines`."""
