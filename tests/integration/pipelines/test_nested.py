"""Pipelines that call pipelines that call pipelines, over lists: many more runs than may be open at once."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homeport.core.pipelines.settings import PipelineSettings
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

ROOM = 4
STEPS = """
import anyio
from homeport.core.pipelines.advance import Outcome


class Gate:
    opened = False

    async def carry_out(self, work):
        while not Gate.opened:
            await anyio.sleep(0.05)
        return Outcome()

    async def stop(self, work): ...
"""
GATE = "steps: {only: {plugin: {name: gate}}}"


def calling(name: str, other: str) -> str:
    step = f"{{for_each: '[1, 2, 3, 4, 5]', parallel: 5, pipeline: {{name: {other}}}}}"
    return f"name: {name}\nsteps:\n  each: {step}\n"


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """With room for four runs of each kind, and four that are driven."""
    (tmp_path / "gated.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "gated", raising=False)
    monkeypatch.setattr("homeport.pipelines.service.OPEN_MAX", ROOM)
    monkeypatch.setattr("homeport.pipelines.service.CALLED_MAX", ROOM, raising=False)
    monkeypatch.setattr("homeport.pipelines.engine.DRIVEN_MAX", ROOM)
    settings = PipelineSettings(step_plugins={"gate": "gated:Gate"})
    async with running_central(tmp_path / "central", pipelines=settings) as (_, client):
        for source in (f"name: low\n{GATE}", calling("middle", "low"), calling("high", "middle")):
            answer = await client.post("/api/v1/pipelines", {"source": source})
            assert answer.status == 200, answer.body
        yield client


def open_gate() -> None:
    import gated  # type: ignore[import-not-found]

    gated.Gate.opened = True


async def test_runs_that_others_wait_for_always_find_room(client: Client) -> None:
    run = await begin(client, "high")
    open_gate()
    ended = await end_of(client, run)
    assert ended["state"] == "SUCCEEDED", ended["reason"]
    assert len((await client.get("/api/v1/pipeline-runs?pipeline=low&limit=100")).body["runs"]) == 25


async def test_runs_that_others_called_take_no_room_from_those_that_people_begin(client: Client) -> None:
    await begin(client, "high")

    async def is_full() -> bool:
        found = (await client.get("/api/v1/pipeline-runs?state=RUNNING&limit=100")).body["runs"]
        return bool(sum(each["trigger"] == "pipeline" for each in found) >= ROOM)

    await eventually(is_full, what="the called runs to fill their room")
    others = [await begin(client, "low") for _ in range(ROOM - 1)]
    refused = await client.post("/api/v1/pipeline-runs", {"pipeline": "low"})
    assert (refused.status, "4 runs" in refused.body["detail"]) == (503, True), refused.body

    async def are_driven() -> bool:
        states = [(await client.get(f"/api/v1/pipeline-runs/{each}")).body["state"] for each in others]
        return states == ["RUNNING"] * len(others)

    await eventually(are_driven, what="the runs of people to begin")
    open_gate()
    for each in others:
        assert (await end_of(client, each))["state"] == "SUCCEEDED"


async def begin(client: Client, name: str) -> str:
    made = await client.post("/api/v1/pipeline-runs", {"pipeline": name})
    assert made.status == 201, made.body
    return str(made.body["id"])


async def end_of(client: Client, run: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def has_ended() -> bool:
        found[:] = [(await client.get(f"/api/v1/pipeline-runs/{run}")).body]
        return found[0]["state"] in {"SUCCEEDED", "FAILED", "CANCELLED"}

    await eventually(has_ended, what="the run to end", seconds=60)
    return found[0]
