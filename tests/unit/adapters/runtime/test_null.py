"""The fake runtime: its memory, its speed and its scripted faults."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from homeport.adapters.runtime.fake import NullRuntime
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import WorkFailed
from homeport.ports import Workload
from homeport.vocabulary import Code, DeploymentId, ProfileType

pytestmark = pytest.mark.anyio


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[NullRuntime]:
    runtime = NullRuntime(tmp_path)
    await runtime.start()
    yield runtime
    await runtime.close()


def workload(name: str = "web", key: str = "d", **wish: object) -> Workload:
    spec = ComponentSpec(name, ProfileType.HELM, "", "1", extensions={"x-homeport-extensions": {"null": wish}})
    return Workload(DeploymentId(key), spec, Path())


def ignore(step: str, message: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@pytest.mark.parametrize("code", ["COMPONENT_FETCH_FAILED", "IMAGE_PULL_FAILED", "DISK_FULL"])
async def test_a_fetching_fault_happens_before_anything_changes(runtime: NullRuntime, code: str) -> None:
    with pytest.raises(WorkFailed) as failure:
        await runtime.prepare(workload(fail=code), ignore)
    assert failure.value.code == Code(code)


@pytest.mark.parametrize("code", ["CREATE_FAILED", "EXITED", "TIMEOUT"])
async def test_a_starting_fault_leaves_nothing_running(runtime: NullRuntime, code: str) -> None:
    with pytest.raises(WorkFailed) as failure:
        await runtime.apply(workload(fail=code), ignore)
    assert failure.value.code == Code(code)
    assert await runtime.observe(DeploymentId("d")) == []


async def test_a_removal_can_fail_too(runtime: NullRuntime) -> None:
    await runtime.apply(workload(fail="REMOVE_FAILED"), ignore)
    with pytest.raises(WorkFailed, match="REMOVE_FAILED"):
        await runtime.remove(DeploymentId("d"), "web", remove_images=False)


async def test_a_cut_line_costs_only_itself(runtime: NullRuntime, tmp_path: Path) -> None:
    await runtime.apply(workload("one"), ignore)
    await runtime.apply(workload("two"), ignore)
    await runtime.close()
    path = tmp_path / "null.jsonl"
    path.write_text(path.read_text()[:-20])
    again = NullRuntime(tmp_path)
    await again.start()
    assert [observation.component for observation in await again.observe(DeploymentId("d"))] == ["one"]
    await again.close()
