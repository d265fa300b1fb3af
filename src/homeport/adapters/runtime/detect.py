"""Opens the runtime that a node was asked for, or finds out which one this machine has."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from homeport.adapters.runtime.by_type import RuntimeByType
from homeport.adapters.runtime.compose import ComposeRuntime
from homeport.adapters.runtime.container_engine import EngineOptions
from homeport.adapters.runtime.containerd import ContainerdRuntime
from homeport.adapters.runtime.docker import DockerEngine
from homeport.adapters.runtime.fake import NullRuntime
from homeport.adapters.runtime.helm_cluster import HelmInCluster
from homeport.adapters.runtime.helm_podman import HelmOnPodman
from homeport.adapters.runtime.podman import PodmanEngine
from homeport.adapters.runtime.process import ProcessRuntime
from homeport.errors import EngineUnavailable, InvalidInput
from homeport.ports import Registry, Runtime
from homeport.vocabulary import NodeId

RuntimeKind = Literal["auto", "podman", "docker", "containerd", "process", "null"]
KINDS: tuple[RuntimeKind, ...] = ("auto", "podman", "docker", "containerd", "process", "null")
INSTALL_HINT = (
    "Install Podman (Debian: apt-get install podman runc) or Docker and start it; "
    "homeport doctor  tells what is missing, and  --runtime process  runs native programs without either."
)


async def open_runtime(
    kind: str, data: Path, registry: Registry, node_id: NodeId, *, options: EngineOptions | None = None
) -> Runtime:
    """A started runtime; the caller closes it. Raises EngineUnavailable with a sentence that says what to do.

    `options` defaults to the environment of this process, and nothing else.
    """
    chosen = options or EngineOptions(environment=dict(os.environ))
    if kind == "auto":
        return await _open_first(data, registry, node_id, chosen)
    runtime = _make(kind, data, registry, node_id, chosen)
    try:
        await runtime.start()
    except BaseException:
        await runtime.close()
        raise
    return runtime


async def _open_first(data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    """Podman before Docker, for it needs no daemon of root's; containerd last, for it runs single images alone."""
    reasons = []
    for kind in ("podman", "docker", "containerd"):
        try:
            return await open_runtime(kind, data, registry, node_id, options=options)
        except EngineUnavailable as error:
            reasons.append(f"{kind}: {error}")
    raise EngineUnavailable(f"No container engine works here. {' '.join(reasons)}", hint=INSTALL_HINT)


def _make(kind: str, data: Path, registry: Registry, node_id: NodeId, options: EngineOptions) -> Runtime:
    if options.kubeconfig is not None and kind != "null":
        cluster = HelmInCluster(options.kubeconfig, data, registry, node_id, options.environment)
        return RuntimeByType(_make(kind, data, registry, node_id, replace(options, kubeconfig=None)), cluster)
    if kind == "podman":
        engine = PodmanEngine(data, options)
        return RuntimeByType(ComposeRuntime(engine, registry, node_id), HelmOnPodman(engine, registry, node_id))
    if kind == "docker":
        return ComposeRuntime(DockerEngine(options), registry, node_id)
    if kind == "containerd":
        return ContainerdRuntime(data, options, node_id)
    if kind == "process":
        return ProcessRuntime(data, options.environment)
    if kind == "null":
        return NullRuntime(data)
    raise InvalidInput(f'There is no runtime "{kind}".', hint=f"Choose one of {', '.join(KINDS)}.")
