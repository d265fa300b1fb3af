"""How runtimes hand secrets to workloads: through environments, and no file of ours holds a value."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from homeport.adapters.runtime.compose.files import write_override, write_secret_files
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.adapters.runtime.programs.environment import steers_the_tool
from homeport.core.model.deployment import ComponentSpec
from homeport.core.secrets import SecretValue, filled
from homeport.errors import WorkFailed
from homeport.ports import Workload
from homeport.vocabulary import Code, NodeId, ProfileType
from tests.support.builders import deployment_id
from tests.support.orders import a_component, a_release
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

VALUE = "never-on-the-disk-0123456789"
OURS = "x-homeport-extensions"


def given(spec: ComponentSpec) -> ComponentSpec:
    (part,) = filled(a_release(spec), {"DB": SecretValue(1, VALUE)}).components
    return part


def holders(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]


def quiet(*_: object) -> None:
    pass


def test_the_override_names_the_variable_and_not_its_value(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {web: {image: x}}\n")
    spec = given(replace(a_component(), environment={"PASSWORD": "secret://DB", "GREETING": "Ahoy"}))
    workload = Workload(deployment_id(), spec, tmp_path / "component")
    text = write_override(tmp_path, workload, NodeId("one"), (), named=("PASSWORD",)).read_text()
    assert VALUE not in text
    assert "secret://" not in text


def test_files_for_containers_are_in_a_folder_that_keeps_others_out(tmp_path: Path) -> None:
    folder = tmp_path / "component" / "secrets"
    write_secret_files(folder, {"/old": "old"})
    written = write_secret_files(folder, {"/run/a": VALUE})
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.read_text() for path in folder.iterdir()] == [VALUE], "an earlier one is gone"
    assert written["/run/a"].stat().st_mode & 0o777 == 0o444
    assert write_secret_files(folder, {}) == {}
    assert not folder.exists()


def test_a_variable_that_steers_the_tool_cannot_hold_a_secret() -> None:
    assert all(steers_the_tool(name) for name in ("PATH", "LD_PRELOAD", "DOCKER_HOST", "COMPOSE_FILE"))
    assert not steers_the_tool("DB_PASSWORD")


async def test_a_program_gets_its_secret_and_no_file_holds_it(tmp_path: Path) -> None:
    script = "import os, sys; print(len(os.environ['PASSWORD']), 'HOMEPORT_SECRET_PASSWORD' in os.environ)"
    spec = replace(
        a_component(kind=ProfileType.CUSTOM),
        environment={"PASSWORD": "secret://DB"},
        extensions={OURS: {"process": {"command": [sys.executable, "-c", script]}}},
    )
    runtime = ProcessRuntime(tmp_path, {})
    workload = Workload(deployment_id(), given(spec), tmp_path / "component")
    await runtime.start()
    try:
        await runtime.apply(workload, quiet)

        async def said() -> bool:
            return [line async for line in runtime.logs(workload, tail=5)] == [f"{len(VALUE)} False\n".encode()]

        await eventually(said)
        assert holders(tmp_path) == []
    finally:
        await runtime.remove(deployment_id(), spec.name, remove_images=False)


async def test_a_program_cannot_be_given_a_secret_as_a_file(tmp_path: Path) -> None:
    extensions = {OURS: {"process": {"command": ["true"]}, "secrets": {"files": {"/etc/key": "KEY"}}}}
    spec = replace(a_component(kind=ProfileType.CUSTOM), environment={"KEY": "secret://DB"}, extensions=extensions)
    runtime = ProcessRuntime(tmp_path, {})
    with pytest.raises(WorkFailed, match="not files") as failure:
        await runtime.prepare(Workload(deployment_id(), given(spec), tmp_path), quiet)
    assert failure.value.code == Code.CREATE_FAILED
