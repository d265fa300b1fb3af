"""How each runtime is brought into the same situations, so that one suite can ask all of them the same questions."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.detect import open_runtime
from homeport.adapters.runtime.docker_api.engine import EngineOptions
from homeport.core.model.deployment import ComponentSpec
from homeport.ports import Container, Runtime, Workload
from homeport.vocabulary import Code, DeploymentId, NodeId, ProfileType
from tests.support.charts import chart_artifact, deployment
from tests.support.engines import compose_artifact
from tests.support.podman import new_node_prefix

STAYS_SERVICE: Mapping[str, Any] = {
    "command": ["sh", "-c", "echo greeting=$$GREETING; trap 'exit 0' TERM; while true; do sleep 0.1; done"]
}
STAYS = (
    "echo file=$(cat /run/secrets/greeting 2>/dev/null); echo greeting=$GREETING; "
    "trap 'exit 0' TERM; while true; do sleep 0.1; done"
)
CHECK = "cat /nothing-here"
GREETING = "{{ .Values.greeting | quote }}"


class Stand(Protocol):
    """One runtime under test. Workloads differ only in what they are made of."""

    code_of_missing: Code
    deployment_id: DeploymentId

    def opened(self) -> contextlib.AbstractAsyncContextManager[Runtime]: ...
    async def runs(self, **environment: str) -> Workload: ...
    async def unhealthy(self) -> Workload: ...
    async def missing(self) -> Workload: ...
    async def exits(self) -> Workload: ...
    async def uncreatable(self) -> Workload: ...
    async def never_ready(self) -> Workload:
        """Runs, and its check may still come good for longer than a test waits."""
        ...

    async def updated(self) -> Workload:
        """Another version of what `runs` runs, for which something else has to be fetched."""
        ...

    async def of_other_type(self) -> Workload | None: ...

    def named(self, workload: Workload, name: str) -> Workload:
        """The same as another component of the same deployment."""
        ...

    def kill(self, container: Container) -> bool:
        """As a person would, by hand; False where that cannot be done."""
        ...

    def remove(self, container: Container) -> bool: ...
    def freeze(self, container: Container) -> bool: ...
    def known_of(self, container: Container) -> str:
        """All that the engine and our files tell about it to whoever asks, but not the environment it was given."""
        ...


@dataclass
class Base:
    """What the stands share: a folder, a node and a deployment of their own."""

    kind: str
    folder: Path
    registry_host: str
    options: EngineOptions
    node_id: NodeId = field(default_factory=lambda: NodeId(new_node_prefix("node")))
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

    def named(self, workload: Workload, name: str) -> Workload:
        return replace(workload, spec=replace(workload.spec, name=name), folder=self.folder / "components" / name)

    def kill(self, container: Container) -> bool:
        return False

    def remove(self, container: Container) -> bool:
        return False

    def freeze(self, container: Container) -> bool:
        return False

    def known_of(self, container: Container) -> str:
        files = [path for path in (self.folder / "data").rglob("*") if path.is_file() and path.suffix != ".log"]
        return "".join(path.read_text(errors="replace") for path in files)


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
        return self.workload(environment={"SAID": "unknown flag --nope"}, extensions={"null": {"fail": "EXITED"}})

    async def uncreatable(self) -> Workload:
        return self.workload(extensions={"null": {"fail": "CREATE_FAILED"}})

    async def never_ready(self) -> Workload:
        return self.workload(extensions={"null": {"seconds": 600}})

    async def updated(self) -> Workload:
        return self.workload(environment={"VERSION": "2"})

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
        never = {"command": ["sh", "-c", CHECK], "interval_seconds": 600}
        return self._process(
            [sys.executable, "-c", "print('unknown flag --nope', flush=True); raise SystemExit(3)"], health=never
        )

    async def uncreatable(self) -> Workload:
        return await self.missing()

    async def never_ready(self) -> Workload:
        return self._process(["sh", "-c", STAYS], health={"command": ["sh", "-c", CHECK], "interval_seconds": 600})

    async def updated(self) -> Workload:
        return self._process(["sh", "-c", STAYS], environment={"VERSION": "2"})

    async def of_other_type(self) -> Workload | None:
        return self.workload(type_=ProfileType.COMPOSE)

    def kill(self, container: Container) -> bool:
        os.kill(int(container.id.partition("-")[0]), signal.SIGKILL)
        return True

    def _process(self, command: list[str], *, environment: Mapping[str, str] | None = None, **more: Any) -> Workload:
        return self.workload(environment=environment, extensions={"process": {"command": command, **more}})


@dataclass
class EngineStand(Base):
    """On an engine whose own program a person can use."""

    image: str = ""
    code_of_missing = Code.IMAGE_PULL_FAILED

    def engine(self, *arguments: str) -> str:
        """What a person would do by hand with the engine's own program."""
        done = self._run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment, command = dict(self.options.environment), [self.kind]
        if self.kind == "docker":
            environment["DOCKER_HOST"] = f"unix://{self.options.socket}"
        if self.kind == "containerd":
            command = ["ctr", "--address", str(self.options.socket), "--namespace", "homeport"]
        return subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def kill(self, container: Container) -> bool:
        if self.kind == "containerd":
            self.engine("tasks", "kill", "--signal", "SIGKILL", container.id)
        else:
            self.engine("kill", container.id)
        return True

    def remove(self, container: Container) -> bool:
        if self.kind == "containerd":
            self.engine("tasks", "rm", "--force", container.id)
            self.engine("containers", "rm", container.id)
        else:
            self.engine("rm", "--force", container.id)
        return True

    def freeze(self, container: Container) -> bool:
        self.engine(*(["tasks"] if self.kind == "containerd" else []), "pause", container.id)
        return True

    def has_image(self) -> bool:
        """Asked for this image alone: a listing stumbles over those that others remove meanwhile."""
        if self.kind == "containerd":
            return self.image in self.engine("images", "ls", "-q").split()
        return self._run("image", "inspect", self.image).returncode == 0

    @property
    def newer_image(self) -> str:
        """The same image under another tag, so that it has to be pulled."""
        name, _, _ = self.image.rpartition(":")
        return f"{name}:2"

    def forget_image(self, image: str | None = None) -> None:
        self._run(*(("images", "rm", "--sync") if self.kind == "containerd" else ("rmi",)), image or self.image)

    def environment_of(self, container: Container) -> dict[str, str]:
        if self.kind == "containerd":
            lines = json.loads(self.engine("containers", "info", container.id))["Spec"]["process"]["env"]
        else:
            lines = json.loads(self.engine("inspect", container.id))[0]["Config"]["Env"]
        return dict(each.split("=", 1) for each in lines)

    def known_of(self, container: Container) -> str:
        if self.kind == "containerd":
            told = json.loads(self.engine("containers", "info", container.id))
            told["Spec"]["process"].pop("env")
            return super().known_of(container) + json.dumps(told)
        told = json.loads(self.engine("inspect", container.id))[0]
        # The engine's own record of what it was asked to make holds the environment; Podman's of the command too.
        told["Config"].pop("Env")
        told["Config"].pop("CreateCommand", None)
        return super().known_of(container) + json.dumps(told)


@dataclass
class ImageStand(EngineStand):
    """A single image, without compose."""

    type: ProfileType = ProfileType.CUSTOM

    async def runs(self, **environment: str) -> Workload:
        return self.one(environment=environment)

    async def unhealthy(self) -> Workload:
        return self.one(health={"command": ["sh", "-c", CHECK], "interval_seconds": 1, "retries": 2})

    async def missing(self) -> Workload:
        return self.one(reference=f"{self.registry_host}/no-such-image:1")

    async def exits(self) -> Workload:
        return self.one(
            command=["sh", "-c", "echo unknown flag --nope >&2; exit 3"],
            health={"command": ["sh", "-c", CHECK], "interval_seconds": 600},
        )

    async def uncreatable(self) -> Workload:
        return self.one(command=["/no-such-program"])

    async def never_ready(self) -> Workload:
        return self.one(health={"command": ["sh", "-c", CHECK], "interval_seconds": 600})

    async def updated(self) -> Workload:
        return self.one(reference=self.newer_image)

    async def of_other_type(self) -> Workload | None:
        return None if self.kind == "podman" else self.workload(type_=ProfileType.HELM)

    def run_by_hand(self, name: str) -> None:
        """Another container under this name, without anything that says it is ours."""
        if self.kind == "containerd":
            self.engine("containers", "create", self.image, name)
        else:
            self.engine("create", "--network", "none", "--name", name, self.image, "sleep", "600")

    def forget_container(self, name: str) -> None:
        self._run(*(("containers", "rm") if self.kind == "containerd" else ("rm", "--force")), name)

    def one(self, *, environment: Mapping[str, str] | None = None, **image: Any) -> Workload:
        section = {"reference": self.image, "command": ["sh", "-c"], "args": [STAYS], **image}
        if "command" in image and "args" not in image:
            del section["args"]
        return self.workload(environment=environment, extensions={"image": section})


@dataclass
class ComposeStand(EngineStand):
    async def runs(self, **environment: str) -> Workload:
        return await self._compose("runs", {"command": ["sh", "-c", STAYS.replace("$", "$$")]}, environment)

    async def unhealthy(self) -> Workload:
        check = {"test": ["CMD-SHELL", CHECK], "interval": "1s", "timeout": "5s", "retries": 2}
        service = {"command": ["sh", "-c", STAYS.replace("$", "$$")], "healthcheck": check}
        return await self._compose("unhealthy", service)

    async def missing(self) -> Workload:
        return await self._compose("missing", {"image": f"{self.registry_host}/no-such-image:1"})

    async def exits(self) -> Workload:
        check = {"test": ["CMD-SHELL", CHECK], "interval": "600s"}
        return await self._compose(
            "exits", {"command": ["sh", "-c", "echo unknown flag --nope >&2; exit 3"], "healthcheck": check}
        )

    async def uncreatable(self) -> Workload:
        return await self._compose("uncreatable", {"command": ["/no-such-program"]})

    async def never_ready(self) -> Workload:
        check = {"test": ["CMD-SHELL", CHECK], "interval": "600s", "retries": 2}
        service = {"command": ["sh", "-c", STAYS.replace("$", "$$")], "healthcheck": check}
        return await self._compose("never-ready", service)

    async def updated(self) -> Workload:
        service = {"command": ["sh", "-c", STAYS.replace("$", "$$")], "image": self.newer_image}
        return await self._compose("updated", service)

    async def of_other_type(self) -> Workload | None:
        return None if self.kind == "podman" else self.workload(type_=ProfileType.HELM)

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
        files: Mapping[str, str] | None = None,
        volumes: Sequence[str] = (),
    ) -> Workload:
        """A component with these services and files, pushed to the registry at `host`."""
        content = json.dumps(
            {
                "services": {key: {"image": self.image, **service} for key, service in services.items()},
                **({"volumes": {name: {} for name in volumes}} if volumes else {}),
            }
        )
        repository = f"oci://{host or self.registry_host}/{self.deployment_id}-{name}"
        await OciRegistry().push(repository, "1.0.0", compose_artifact(content, **(files or {})))
        return self.workload(environment=environment, repository=repository)


@dataclass
class HelmStand(EngineStand):
    """Charts on Podman, without Kubernetes."""

    type: ProfileType = ProfileType.HELM

    async def runs(self, **environment: str) -> Workload:
        # As a site passes values on: JSON, by their place in the chart.
        values = {name.lower(): json.dumps(value) for name, value in environment.items()}
        variable = {"name": "GREETING", "value": "@greeting@"}
        chart = deployment("main", {"image": self.image, "command": ["sh", "-c", STAYS], "env": [variable]})
        return await self.chart("runs", {"main.yaml": chart.replace('"@greeting@"', GREETING)}, values)

    async def unhealthy(self) -> Workload:
        probe = {"exec": {"command": ["sh", "-c", CHECK]}, "periodSeconds": 1, "failureThreshold": 2}
        container = {"image": self.image, "command": ["sh", "-c", STAYS], "readinessProbe": probe}
        return await self.chart("unhealthy", {"main.yaml": deployment("main", container)})

    async def missing(self) -> Workload:
        image = f"{self.registry_host}/no-such-image:1"
        return await self.chart("missing", {"main.yaml": deployment("main", {"image": image})})

    async def exits(self) -> Workload:
        program = ["sh", "-c", "echo unknown flag --nope >&2; exit 3"]
        probe = {"exec": {"command": ["sh", "-c", CHECK]}, "periodSeconds": 600}
        container = {"image": self.image, "command": program, "readinessProbe": probe}
        return await self.chart("exits", {"main.yaml": deployment("main", container)})

    async def uncreatable(self) -> Workload:
        container = {"image": self.image, "command": ["/no-such-program"]}
        return await self.chart("uncreatable", {"main.yaml": deployment("main", container)})

    async def never_ready(self) -> Workload:
        probe = {"exec": {"command": ["sh", "-c", CHECK]}, "periodSeconds": 600}
        container = {"image": self.image, "command": ["sh", "-c", STAYS], "readinessProbe": probe}
        return await self.chart("never-ready", {"main.yaml": deployment("main", container)})

    async def updated(self) -> Workload:
        container = {"image": self.newer_image, "command": ["sh", "-c", STAYS]}
        return await self.chart("updated", {"main.yaml": deployment("main", container)})

    async def of_other_type(self) -> Workload | None:
        return None

    async def chart(
        self, name: str, templates: Mapping[str, str], values: Mapping[str, str] | None = None
    ) -> Workload:
        """A component whose chart has these templates, pushed to the registry."""
        repository = f"oci://{self.registry_host}/{self.deployment_id}-chart-{name}"
        await OciRegistry().push(repository, "1.0.0", chart_artifact(templates, {"greeting": ""}))
        return self.workload(environment=values, repository=repository)
