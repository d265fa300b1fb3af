"""The container engine as the node sees it: opened at start, then monitored, and described to the site."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio

from homeport.core.model.node import Capabilities, NodeInfo
from homeport.core.model.protocol import OWN
from homeport.core.node.permissions import LABEL_ALLOW
from homeport.errors import EngineUnavailable
from homeport.log import get_log
from homeport.node import hardware
from homeport.node.pages.status import NodeStatus
from homeport.node.settings import NodeSettings
from homeport.ports import Runtime
from homeport.vocabulary import ProfileType

log = get_log("homeport.node")


class Discover(Protocol):
    """Determines the machine's capabilities with this engine."""

    def __call__(
        self, data: Path, *, engine: str, engine_version: str, profile_types: tuple[ProfileType, ...]
    ) -> Capabilities: ...


class NodeEngine:
    def __init__(
        self,
        settings: NodeSettings,
        runtime: Runtime,
        status: NodeStatus,
        *,
        discover: Discover = hardware.discover,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._status = status
        self._discover = discover
        self._opened = anyio.Event()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    async def wait_open(self) -> None:
        await self._opened.wait()

    async def check(self, on_change: Callable[[], None]) -> None:
        """Opens the engine, or checks that it still responds. `on_change` is called when the site must be notified:
        the engine is available now, or has another version."""
        before = self._status.engine_version, self.is_open
        try:
            if not self.is_open:
                await self._runtime.start()
            self._status.engine_version = await self._runtime.version()
        except EngineUnavailable as error:
            self._lost(f"{error} {error.hint or ''}".strip())
            return
        if self._status.engine_problem is not None:
            log.info("container engine reachable", engine=self._runtime.name, version=self._status.engine_version)
        self._status.engine_problem = None
        self._opened.set()
        if before != (self._status.engine_version, True):
            on_change()

    def describe(self) -> NodeInfo:
        """An engine that was never opened is not named: nothing must be placed here yet."""
        return NodeInfo(
            id=self._status.node_id,
            hostname=self._settings.hostname,
            capabilities=self._discover(
                self._settings.data,
                engine=self._runtime.name if self.is_open else "",
                engine_version=self._status.engine_version,
                profile_types=self._runtime.profile_types if self.is_open else (),
            ),
            labels={**self._settings.labels, LABEL_ALLOW: ",".join(self._settings.permissions.shown())},
            software_version=self._status.software_version,
            protocol=OWN,
        )

    def _lost(self, problem: str) -> None:
        if self._status.engine_problem != problem:
            log.warning("container engine unreachable", engine=self._runtime.name, error=problem)
        self._status.engine_problem = problem
