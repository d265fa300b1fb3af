"""What a node remembers of its engines, and makes of it when it starts again."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from homeport.adapters.registry.oci import OciRegistry
from homeport.adapters.runtime.fake import NullRuntime
from homeport.adapters.runtime.process.runtime import ProcessRuntime
from homeport.core.custom import OURS
from homeport.core.inference.engines.handoff import Loading, parse
from homeport.core.model.deployment import ComponentSpec
from homeport.errors import WorkFailed
from homeport.models.node.open import with_engines
from homeport.models.node.runtime import EngineState
from homeport.ports import Container, FollowsOutput, OutputLine, Runtime, Workload
from homeport.vocabulary import Code, NodeId, ProfileType
from tests.support.builders import deployment_id

pytestmark = pytest.mark.anyio

SECTION = {"process": {"command": [sys.executable, "-c", "import time; time.sleep(600)"]}}
STATE = EngineState(
    digest="sha256:of-the-component",
    pool_id="tiny",
    engine="llamacpp",
    engine_version="llamacpp-package:1",
    mode="package",
    url="http://127.0.0.1:8100",
    port=8100,
    model_id="tiny",
    model_path="/tiny.gguf",
    model_ref="file:/tiny.gguf",
    slots=1,
    context=4096,
    section=SECTION,
    loading=Loading.UNLOADED.value,
)


async def started_again(data: Path, inner: Runtime | None = None) -> Runtime:
    return await with_engines(inner or NullRuntime(data), data, OciRegistry(), NodeId("n1"), {})


def keep(data: Path, **more: object) -> None:
    path = data / "engine-state" / deployment_id() / "engine.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**asdict(STATE), **more}))


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_text()]


async def test_an_engine_whose_unloading_was_interrupted_by_a_kill_leaves_the_memory(tmp_path: Path) -> None:
    native = ProcessRuntime(tmp_path / "engine-programs", {})
    component = ComponentSpec("engine", ProfileType.CUSTOM, "none", "1", extensions={OURS: SECTION})
    await native.apply(Workload(deployment_id(), component, tmp_path), lambda *progress: None)
    try:
        assert len(await native.observe(deployment_id())) == 1
        keep(tmp_path)
        await started_again(tmp_path)
        assert await native.observe(deployment_id()) == []
    finally:
        await native.remove(deployment_id(), "engine", remove_images=False)


async def test_what_a_newer_version_has_written_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    keep(tmp_path, color="green")
    runtime = await started_again(tmp_path)
    (seen,) = await runtime.observe(deployment_id())
    assert (seen.component, seen.digest) == ("engine", STATE.digest), "it is not started a second time"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pool_id": 3}', b"[" * 100_000, b"\xff"])
async def test_a_damaged_state_harms_itself_alone(tmp_path: Path, content: bytes) -> None:
    keep(tmp_path)
    bad = tmp_path / "engine-state" / deployment_id() / "other.json"
    bad.write_bytes(content)
    runtime = await started_again(tmp_path)
    assert [seen.component for seen in await runtime.observe(deployment_id())] == ["engine"]


def attached(data: Path) -> Workload:
    section = {"engine": "openai", "mode": "external", "url": "https://host/v1", "model_id": "m"}
    component = ComponentSpec(
        "engine",
        ProfileType.CUSTOM,
        "none",
        "1",
        environment={"ENGINE_API_KEY": "secret://UPSTREAM", "SLOTS": "4"},
        extensions={OURS: {"engine": section}},
        secrets={"UPSTREAM": 1},
        secret_values={"UPSTREAM": "sk-1"},
    )
    return Workload(deployment_id(), component, data, name="cloud")


class NoContainers(NullRuntime):
    """A container engine, which knows nothing of engines that run elsewhere."""

    def follow(
        self, workload: Workload, container: Container, resume: str
    ) -> AsyncGenerator[Sequence[OutputLine], None]:
        raise AssertionError(f"there is no container {container.id}")


async def test_an_attached_engine_has_no_output_to_follow(tmp_path: Path) -> None:
    runtime, workload = await started_again(tmp_path, NoContainers(tmp_path)), attached(tmp_path)
    await runtime.apply(workload, lambda *progress: None)
    (seen,) = await runtime.observe(workload.deployment_id)
    assert isinstance(runtime, FollowsOutput)
    assert [lines async for lines in runtime.follow(workload, seen.containers[0], "")] == []


async def test_an_attached_engine_is_handed_over_with_its_key_and_without_our_limits(tmp_path: Path) -> None:
    """The key is a secret that comes with the order; what it reaches is readable for the node's user alone."""
    runtime, workload = await started_again(tmp_path), attached(tmp_path)
    await runtime.apply(workload, lambda *progress: None)
    await runtime.sample_health(workload, lambda run, rules: True)
    (file,) = (tmp_path / "engines").glob("*.json")
    found = parse(json.loads(file.read_text()))
    assert (found.pool_id, found.api_key, found.slots_total) == ("cloud", "sk-1", 4)
    assert (found.ctx_max, found.engine_version) == (None, ""), "the engine says both itself"
    kept = files_with("sk-1", tmp_path)
    assert len(kept) == 2
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


async def test_a_program_that_a_deployment_brings_is_not_run_where_the_owner_has_not_allowed_it(
    tmp_path: Path,
) -> None:
    """With `mode: source` any command could be named, and ran as the node's user whatever the node allowed."""
    trace = tmp_path / "ran"
    section = {
        **{"engine": "llamacpp", "mode": "source", "model": "/m.gguf", "device": "cpu", "revision": "main"},
        **{"repository": f"file://{tmp_path}", "build": f"touch {trace}"},
    }
    component = ComponentSpec("engine", ProfileType.CUSTOM, "none", "1", extensions={OURS: {"engine": section}})
    runtime = await started_again(tmp_path)
    for work in (runtime.prepare, runtime.apply):
        with pytest.raises(WorkFailed, match="--allow native-commands") as refused:
            await work(Workload(deployment_id(), component, tmp_path), lambda *progress: None)
        assert refused.value.code == Code.NOT_ALLOWED
    assert not trace.exists() and not list((tmp_path / "plans").glob("*"))
