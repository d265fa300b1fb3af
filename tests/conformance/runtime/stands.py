"""How each runtime is brought into the same situations, so that one suite can ask all of them the same questions."""

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.container_engine import EngineOptions
from homeport.adapters.runtime.detect import open_runtime
from homeport.core.model.deployment import ComponentSpec
from homeport.ports import Runtime, Workload
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType
from tests.support.engines import compose_artifact

STAYS_SERVICE: Mapping[str, Any] = {
    "command": ["sh", "-c", "echo greeting=$$GREETING; trap 'exit 0' TERM; while true; do sleep 0.1; done"]
}
STAYS = "echo greeting=$GREETING; trap 'exit 0' TERM; while true; do sleep 0.1; done"
CHECK = "cat /nothing-here"


class Stand(Protocol):
    """One runtime under test. Workloads differ only in what they are made of."""

    code_of_missing: Code
    deployment_id: DeploymentId

    def opened(self) -> contextlib.AbstractAsyncContextManager[Runtime]: ...
    async def runs(self, **environment: str) -> Workload: ...
    async def unhealthy(self) -> Workload: ...
    async def missing(self) -> Workload: ...
    async def exits(self) -> Workload: ...
    async def of_other_type(self) -> Workload | None: ...


@dataclass
class Base:
    """What the stands share: a folder, a node and a deployment of their own."""

    kind: str
    folder: Path
    registry_host: str
    options: EngineOptions
    node_id: NodeId = field(default_factory=lambda: NodeId(f"node-{uuid.uuid4().hex[:8]}"))
    deployment_id: DeploymentId = field(default_factory=lambda: DeploymentId(str(uuid.uuid4())))
    type: ProfileType = ProfileType.COMPOSE

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Runtime]:
        data = self.folder / "data"
        runtime = await open_runtime(self.kind, data, OciRegistry(), self.node_id, options=self.options)
        try:
            yield runtime
        finally:
            await runtime.close()

    def workload(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        extensions: Mapping[str, Any] | None = None,
        repository: str = "",
        type_: ProfileType | None = None,
    ) -> Workload:
        spec = ComponentSpec(
            name="web",
            type=type_ or self.type,
            repository=repository,
            revision="1.0.0",
            environment=environment or {},
            timeout_seconds=30.0,
            extensions={"x-homeport-extensions": extensions} if extensions else {},
        )
        return Workload(self.deployment_id, spec, self.folder / "components" / "web")


@dataclass
class NullStand(Base):
    code_of_missing = Code.IMAGE_PULL_FAILED

    async def runs(self, **environment: str) -> Workload:
        return self.workload(environment=environment)

    async def unhealthy(self) -> Workload:
        return self.workload(extensions={"null": {"unhealthy": True}})

    async def missing(self) -> Workload:
        return self.workload(extensions={"null": {"fail": "IMAGE_PULL_FAILED"}})

    async def exits(self) -> Workload:
        return self.workload(extensions={"null": {"fail": "EXITED"}})

    async def of_other_type(self) -> Workload | None:
        return None


@dataclass
class ProcessStand(Base):
    type: ProfileType = ProfileType.CUSTOM
    code_of_missing = Code.CREATE_FAILED

    async def runs(self, **environment: str) -> Workload:
        return self._process(["sh", "-c", STAYS], environment=environment)

    async def unhealthy(self) -> Workload:
        health = {"command": ["sh", "-c", CHECK], "interval_seconds": 0.2, "retries": 2}
        return self._process(["sh", "-c", STAYS], health=health)

    async def missing(self) -> Workload:
        return self._process(["no-such-program-anywhere"])

    async def exits(self) -> Workload:
        return self._process([sys.executable, "-c", "raise SystemExit(3)"])

    async def of_other_type(self) -> Workload | None:
        return self.workload(type_=ProfileType.COMPOSE)

    def _process(self, command: list[str], *, environment: Mapping[str, str] | None = None, **more: Any) -> Workload:
        return self.workload(environment=environment, extensions={"process": {"command": command, **more}})


@dataclass
class ComposeStand(Base):
    image: str = ""
    code_of_missing = Code.IMAGE_PULL_FAILED

    async def runs(self, **environment: str) -> Workload:
        return await self._compose("runs", {"command": ["sh", "-c", STAYS.replace("$", "$$")]}, environment)

    async def unhealthy(self) -> Workload:
        check = {"test": ["CMD-SHELL", CHECK], "interval": "1s", "timeout": "5s", "retries": 2}
        service = {"command": ["sh", "-c", STAYS.replace("$", "$$")], "healthcheck": check}
        return await self._compose("unhealthy", service)

    async def missing(self) -> Workload:
        return await self._compose("missing", {"image": f"{self.registry_host}/no-such-image:1"})

    async def exits(self) -> Workload:
        return await self._compose("exits", {"command": ["sh", "-c", "exit 3"]})

    async def of_other_type(self) -> Workload | None:
        return self.workload(type_=ProfileType.HELM)

    async def _compose(
        self, name: str, service: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Workload:
        return await self.services(name, {"app": service}, environment)

    async def services(
        self,
        name: str,
        services: Mapping[str, Mapping[str, Any]],
        environment: Mapping[str, str] | None = None,
        *,
        host: str | None = None,
    ) -> Workload:
        """A component with these services, pushed to the registry at `host`."""
        content = json.dumps(
            {"services": {key: {"image": self.image, **service} for key, service in services.items()}}
        )
        repository = f"oci://{host or self.registry_host}/{self.deployment_id}-{name}"
        await OciRegistry().push(repository, "1.0.0", compose_artifact(content))
        return self.workload(environment=environment, repository=repository)

    def engine(self, *arguments: str) -> str:
        """What a person would do by hand with the engine's own program."""
        environment = dict(self.options.environment)
        if self.kind == "docker":
            environment["DOCKER_HOST"] = f"unix://{self.options.socket}"
        done = subprocess.run(
            [self.kind, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout
