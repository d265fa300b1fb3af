"""Compose projects, read by the real compose tools: what they make of a file, and what a bad one cannot do."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from homeport.adapters.runtime.compose.files import Service, archive_folder
from homeport.adapters.runtime.compose.project import Projects, services_of
from homeport.adapters.runtime.docker_api.engine import ContainerEngine, EngineOptions
from homeport.adapters.runtime.podman.engine import PodmanEngine
from homeport.core.node.permissions import EVERYTHING, NOTHING, Permissions, parse_permissions
from homeport.errors import InvalidInput, WorkFailed
from homeport.ports import Workload
from homeport.vocabulary import Code
from tests.support.builders import deployment_id
from tests.support.engines import engine_environment
from tests.support.orders import a_component

pytestmark = pytest.mark.anyio


class CountingEngine:
    """As much of an engine as resolving a project needs."""

    def __init__(self, inner: PodmanEngine | None) -> None:
        self.environment = engine_environment()
        self.calls = 0
        self.prestarted = None
        self._inner = inner

    def resolve_command(self, arguments: Sequence[str]) -> list[str]:
        self.calls += 1
        if self._inner is not None:
            return self._inner.resolve_command(arguments)
        return [str(shutil.which("docker-compose")), *arguments, "config"]


@pytest.fixture(params=["podman-compose", "docker-compose"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> CountingEngine:
    if request.param == "docker-compose":
        if shutil.which("docker-compose") is None:
            pytest.fail("docker-compose is not installed: scripts/setup --test installs it")
        return CountingEngine(None)
    return podman_compose(tmp_path)


def podman_compose(folder: Path) -> CountingEngine:
    return CountingEngine(PodmanEngine(folder / "engine", EngineOptions(environment=engine_environment())))


def projects(engine: CountingEngine, permissions: Permissions = EVERYTHING) -> Projects:
    return Projects(cast("ContainerEngine", engine), permissions)


def a_workload(folder: Path, files: dict[str, str], **environment: str) -> Workload:
    workload = Workload(deployment_id(), replace(a_component(), environment=environment), folder / "component")
    for name, content in files.items():
        path = archive_folder(workload) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return workload


async def test_services_are_those_that_the_tool_would_start(engine: CountingEngine, tmp_path: Path) -> None:
    compose = """
services:
  app:
    image: "r/${NAME}:${TAG}"
    depends_on: {hook: {condition: service_completed_successfully}}
  built: {build: ., image: mine}
  many: {image: r/many, deploy: {mode: replicated, replicas: 3}}
  debug: {image: r/debug, profiles: [debug]}
  hook: {extends: {file: base.yaml, service: base}}
"""
    base = "services: {base: {image: 'r/hook:${TAG}'}}"
    files = {"compose.yaml": compose, ".env": "TAG=1\nNAME=from-file\n", "base.yaml": base}
    found = await projects(engine).resolve(a_workload(tmp_path, files, NAME="given"))
    assert sorted(found.services, key=lambda service: service.name) == [
        Service("app", "r/given:1", 1),
        Service("built", None, 1),
        Service("hook", "r/hook:1", 1, ends=True),
        Service("many", "r/many", 3),
    ]


async def test_included_services_are_known_like_the_others(tmp_path: Path) -> None:
    """docker-compose 1 has no include."""
    files = {
        "compose.yaml": "include: [more.yaml]\nservices: {app: {image: a}}",
        "more.yaml": "services: {b: {image: b}}",
    }
    found = await projects(podman_compose(tmp_path)).resolve(a_workload(tmp_path, files))
    assert {service.name for service in found.services} == {"app", "b"}


async def test_the_tool_is_started_once_for_each_set_of_variables(engine: CountingEngine, tmp_path: Path) -> None:
    workload = a_workload(tmp_path, {"compose.yaml": "services: {app: {image: 'a:${TAG}'}}"}, TAG="1")
    known = projects(engine)
    assert await known.resolve(workload) == await known.resolve(workload)
    assert engine.calls == 1
    other = replace(workload, spec=replace(workload.spec, environment={"TAG": "2"}))
    assert (await known.resolve(other)).services[0].image == "a:2"
    assert engine.calls == 2


def doublings(count: int) -> str:
    return "\n".join(["x0: &x0 [a, a]", *(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]" for n in range(1, count))])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "services: {}",
        "services: [",
        "- a",
        "services: nothing",
        "[" * 120_000,
        "services: {web: " + "{a: " * 1000,
        f"{doublings(60)}\nservices: {{web: {{image: *x59}}}}",
        "services: {web: text}",
        "services: {web: [1]}",
        "services: {web: {image: 2024-13-45}}",
        "services: {web: {image: [a]}}",
        f"services: {{web: {{image: a, scale: {'9' * 5000}}}}}",
        "services: {web: {image: a, extends: {file: compose.yaml, service: web}}, 1: 2}",
    ],
)
async def test_a_file_that_cannot_be_used_is_the_components_fault(content: str, tmp_path: Path) -> None:
    """A typed failure that names the component, in a moment; never a crash of the node."""
    with pytest.raises(WorkFailed) as failure:
        await projects(podman_compose(tmp_path)).resolve(a_workload(tmp_path, {"compose.yaml": content}))
    assert failure.value.code is Code.COMPONENT_FETCH_FAILED
    assert str(failure.value).startswith("The component web 1.0.0 cannot be used: ")


@pytest.mark.parametrize("scale", ["²", "9" * 5000, "-1", "many", "1001", 1.5, [2]])
def test_a_number_of_containers_is_a_small_whole_number(scale: object) -> None:
    with pytest.raises(InvalidInput, match="not a number of containers"):
        services_of({"services": {"web": {"image": "a", "scale": scale}}})


async def test_an_expansion_in_the_tool_itself_is_ended(tmp_path: Path) -> None:
    """An included file that is not ours to read before: the tool meets its bound of memory, and nobody else does."""
    engine = CountingEngine(None)
    program = "x = []\nwhile True: x.append(bytes(1_000_000))"
    engine.resolve_command = lambda arguments: [sys.executable, "-c", program]  # type: ignore[method-assign]
    with pytest.raises(WorkFailed, match="MemoryError"):
        await projects(engine).resolve(a_workload(tmp_path, {"compose.yaml": "services: {a: {image: b}}"}))


async def test_what_is_not_allowed_is_refused_with_service_key_and_option(
    engine: CountingEngine, tmp_path: Path
) -> None:
    compose = "services: {web: {image: a, privileged: true, network_mode: host, volumes: ['/etc:/x', './y:/y']}}"
    with pytest.raises(WorkFailed) as failure:
        await projects(engine, NOTHING).resolve(a_workload(tmp_path, {"compose.yaml": compose}))
    assert failure.value.code is Code.NOT_ALLOWED
    for expected in ("service web: privileged", "service web: network_mode: host", "/etc", "--allow"):
        assert expected in str(failure.value)
    some = parse_permissions(["privileged,host-network,host-paths=/etc"])
    assert (await projects(engine, some).resolve(a_workload(tmp_path, {"compose.yaml": compose}))).services


@pytest.mark.parametrize(
    "service",
    [
        "{image: a, env_file: /etc/passwd}",
        "{image: a, env_file: '${FILE}'}",
        "{extends: {file: /etc/hostname, service: x}}",
        "{extends: {file: base.yaml, service: base}}",
        "{image: a, volumes: ['${FILE}:/x']}",
    ],
)
async def test_no_file_of_the_machine_comes_in_by_a_side_door(
    service: str, engine: CountingEngine, tmp_path: Path
) -> None:
    files = {"compose.yaml": f"services: {{web: {service}}}", "base.yaml": "services: {base: {image: b, pid: host}}"}
    with pytest.raises(WorkFailed) as failure:
        await projects(engine, NOTHING).resolve(a_workload(tmp_path, files, FILE="/etc/passwd"))
    assert failure.value.code is Code.NOT_ALLOWED


async def test_a_secret_is_judged_by_its_value_and_not_shown(tmp_path: Path) -> None:
    workload = a_workload(tmp_path, {"compose.yaml": "services: {web: {image: a, volumes: ['${WHERE}:/x']}}"})
    spec = replace(workload.spec, environment={"WHERE": "secret://PLACE"}, secret_values={"PLACE": "/etc/shadow"})
    with pytest.raises(WorkFailed) as failure:
        await projects(podman_compose(tmp_path), NOTHING).resolve(replace(workload, spec=spec))
    assert failure.value.code is Code.NOT_ALLOWED
    assert "shadow" not in str(failure.value)
