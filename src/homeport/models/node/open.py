"""Puts the runtime of engines around a node's own."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.registry.web_files import ModelSourceOptions
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.core.model.engines import main_engine
from homeport.core.node.permissions import NOTHING, Permission, Permissions
from homeport.models.node.provisioner import Provisioner
from homeport.models.node.runtime import EngineRuntime
from homeport.models.store.fetching import ModelFetcher
from homeport.models.store.index import ModelIndex
from homeport.ports import FileSource, Runtime
from homeport.vocabulary import NodeId

MODELS_FOLDER: Final = "models"


async def with_engines(
    inner: Runtime,
    data: Path,
    registry: OciRegistry,
    node_id: NodeId,
    environment: Mapping[str, str],
    *,
    content: FileSource | None = None,
    permissions: Permissions = NOTHING,
) -> Runtime:
    """`inner` is started. Models come from `content`, the site's cache, where it has them. Programs of engines have a
    folder of their own, apart from a node's other programs."""
    fetcher = ModelFetcher(
        ModelIndex(data / MODELS_FOLDER),
        registry,
        ModelSourceOptions.from_environment(environment),
        now_ms=lambda: int(time.time() * 1000),
        content=content,
    )
    native = ProcessRuntime(data / "engine-programs", environment)
    await native.start()
    provisioner = Provisioner(data, fetcher, environment, main_engine(inner.name))
    if inner.name == ProcessRuntime.name:  # its owner has it run programs
        permissions = replace(permissions, allowed=permissions.allowed | {Permission.NATIVE_COMMANDS})
    runtime = EngineRuntime(inner, native, provisioner, data, node_id, permissions=permissions)
    await runtime.finish_unloading()
    return runtime
