"""The container engine as the node sees it: opened at start, watched after, described to the site."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio

from homeport.core.model.node import Capabilities, NodeInfo
from homeport.errors import EngineUnavailable
from homeport.node import capabilities
from homeport.node.settings import NodeSettings
from homeport.node.status import Status
from homeport.ports import Runtime
from homeport.vocabulary import ProfileType

log = logging.getLogger("homeport.node")


class Discover(Protocol):
    """What the machine can do, with this engine on it."""

    def __call__(
        self, data: Path, *, engine: str, engine_version: str, profile_types: tuple[ProfileType, ...]
    ) -> Capabilities: ...


class Engine:
    def __init__(
        self,
        settings: NodeSettings,
        runtime: Runtime,
        status: Status,
        *,
        discover: Discover = capabilities.discover,
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
        """Opens the engine, or asks whether it still answers. `on_change` is called when there is other news for the
        site than before: the engine has come, or is another version now."""
        before = self._status.engine_version, self.is_open
        try:
            if not self.is_open:
                await self._runtime.start()
            self._status.engine_version = await self._runtime.version()
        except EngineUnavailable as error:
            self._lost(f"{error} {error.hint or ''}".strip())
            return
        if self._status.engine_problem is not None:
            log.info("engine answers", extra={"engine": self._runtime.name, "version": self._status.engine_version})
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
            labels=self._settings.labels,
            software_version=self._status.software_version,
        )

    def _lost(self, problem: str) -> None:
        if self._status.engine_problem != problem:
            log.warning("engine does not answer", extra={"engine": self._runtime.name, "error": problem})
        self._status.engine_problem = problem
