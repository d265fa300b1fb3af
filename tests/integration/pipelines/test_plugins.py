"""Steps of the user's own kinds."""

import asyncio
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from homeport.core.pipelines.settings import PipelineSettings
from homeport.errors import InvalidInput
from homeport.pipelines.steps.plugin import open_plugins
from tests.support.ports import free_port
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "run-pipelines.md"
ODD = """
from homeport.core.pipelines.advance import Outcome
from homeport.core.pipelines.model import ItemResult


class Base:
    async def stop(self, work):
        raise RuntimeError("not even this")


class Raises(Base):
    async def carry_out(self, work):
        raise ValueError("the cellar is flooded")


class Returns(Base):
    async def carry_out(self, work):
        return {"found": True}


class Leaves(Base):
    async def carry_out(self, work):
        return Outcome(ItemResult({"a set": {1, 2}}))


class Hangs(Base):
    async def carry_out(self, work):
        import anyio
        await anyio.sleep(60)


class Patient(Base):
    tries = 0

    async def carry_out(self, work):
        import anyio
        from homeport.errors import PeerUnavailable
        self.tries += 1
        if self.tries == 1:
            raise PeerUnavailable("The cellar is locked.")
        await anyio.sleep(60)


class NoStop:
    async def carry_out(self, work): ...
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"odd_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)
    return name


async def test_the_plugin_of_the_guide_waits_for_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (step,) = [each for each in re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "plugin:" in each]
    named = re.search(r"--step-plugin ([\w-]+)=(\w+):(\w+)", code)
    assert named is not None
    (tmp_path / f"{named[2]}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    settings = PipelineSettings(step_plugins={named[1]: f"{named[2]}:{named[3]}"})
    inputs, outputs = "inputs: {port: {type: number}}", "outputs: {port: '${{ steps.settled.output.port }}'}"
    source = f"name: guide\n{inputs}\n{step}{outputs}\n"
    port = free_port()
    async with running_central(tmp_path / "central", pipelines=settings) as (_, client):
        path = await _begun(client, {"source": source, "inputs": {"port": port}})
        assert (await client.get(path)).body["state"] in {"PENDING", "RUNNING"}, "nothing listens there yet"
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
        async with server:
            run = await _ended(client, path)
        assert (run["state"], run["outputs"]) == ("SUCCEEDED", {"port": port}), run
        left = (await client.get(f"{path}/steps/settled")).body["items"][0]
        assert left["log"] == f"127.0.0.1:{port} answers\n"


async def test_what_a_plugin_does_wrong_fails_its_own_step(tmp_path: Path, odd: str) -> None:
    classes = {name.lower(): f"{odd}:{name}" for name in ("Raises", "Returns", "Leaves", "Hangs")}
    steps = "".join(f"  {name}: {{timeout: 1s, plugin: {{name: {name}}}}}\n" for name in classes)
    settings = PipelineSettings(step_plugins=classes)
    async with running_central(tmp_path / "central", pipelines=settings) as (_, client):
        path = await _begun(client, {"source": f"name: odd\nsteps:\n{steps}"})
        run = await _ended(client, path)
        failures = {each["name"]: each["items"][0]["failure"] for each in run["steps"]}
        assert run["state"] == "FAILED"
        assert {name: each["code"] for name, each in failures.items()} == {
            "raises": "PLUGIN_FAILED",
            "returns": "PLUGIN_FAILED",
            "leaves": "PLUGIN_FAILED",
            "hangs": "TIMEOUT",
        }
        assert "the cellar is flooded" in failures["raises"]["message"]
        assert "dict, not an Outcome" in failures["returns"]["message"]


async def test_a_plugin_that_had_to_wait_and_then_runs_does_not_wait_any_more(tmp_path: Path, odd: str) -> None:
    settings = PipelineSettings(step_plugins={"patient": f"{odd}:Patient"})
    async with running_central(tmp_path / "central", pipelines=settings) as (_, client):
        source = "name: odd\nsteps:\n  one: {timeout: 1m, plugin: {name: patient}}\n"
        path = await _begun(client, {"source": source})

        async def says(reason: str) -> bool:
            (step,) = (await client.get(path)).body["steps"] or [{"reason": "", "items": []}]
            return [step["reason"], *(each["reason"] for each in step["items"])] == [reason] * 2

        await eventually(lambda: says("waits: The cellar is locked."), what="the step to wait")
        await eventually(lambda: says(""), what="the step to have begun", seconds=20)


async def test_a_plugin_that_central_does_not_have_is_refused_with_its_field(tmp_path: Path) -> None:
    source = "name: lost\nsteps:\n  one: {plugin: {name: nowhere}}\n"
    async with running_central(tmp_path / "central") as (_, client):
        for path in ("pipeline-runs", "pipelines", "pipeline-checks"):
            answer = await client.post(f"/api/v1/{path}", {"source": source})
            assert answer.status == 422, answer.body
            (error,) = answer.body["errors"]
            assert error["field"] == "steps.one.plugin.name"
            assert "nowhere" in error["message"]
        assert (await client.get("/api/v1/pipeline-runs")).body["runs"] == []


@pytest.mark.parametrize("place", ["no_such_module_here:Any", "json", "json:missing", "{odd}:NoStop"])
def test_a_class_that_is_no_plugin_says_so(place: str, odd: str) -> None:
    with pytest.raises(InvalidInput, match="step_plugins"):
        open_plugins({"mine": place.format(odd=odd)})


async def _begun(client: Client, body: dict[str, Any]) -> str:
    made = await client.post("/api/v1/pipeline-runs", body)
    assert made.status == 201, made.body
    return f"/api/v1/pipeline-runs/{made.body['id']}"


async def _ended(client: Client, path: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def has_ended() -> bool:
        found[:] = [(await client.get(path)).body]
        return found[0]["state"] in {"SUCCEEDED", "FAILED", "CANCELLED"}

    await eventually(has_ended, what="the run to end")
    return found[0]
