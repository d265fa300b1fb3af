"""A task that waited when Homeport was stopped, and whoever follows it before its pool is back."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.core.inference.engines.handoff import EngineName, HandoffModel
from tests.integration.inference.conftest import TASK, bind, handoff
from tests.support.engines_on_wire import Break, serve_broken
from tests.support.running_central import running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio


async def left_waiting(folder: Path) -> dict[str, Any]:
    """A task that is queued behind another in a central that has stopped."""
    first = {**TASK, "model_ref": "m", "engine": "openai"}
    waiting = {**first, "task_id": "6b1f0f6e-30c1-4d4f-9d0c-000000000002"}
    async with serve_broken(Break.HANGS) as engine, running_central(folder) as (central, client):
        assert (await client.post("/v2/artifacts", {"kind": "plan", "content": {"steps": [7]}})).status == 201
        await bind(client, central, engine.handoff())
        assert (await client.post("/v2/tasks", first)).status == 202
        await eventually(lambda: engine.running == 1, what="the first task to take the slot")
        assert (await client.post("/v2/tasks", waiting)).status == 202
    return waiting


async def test_who_follows_a_task_hears_that_it_waits_until_its_pool_is_back(tmp_path: Path, llama: str) -> None:
    waiting = await left_waiting(tmp_path / "central")
    async with (
        running_central(tmp_path / "central") as (central, client),
        client.session.get(f"{client.url}/v2/tasks/{waiting['task_id']}/events") as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert await answer.content.readline() == b": waiting\n"
        page = (await client.get("/metrics")).body
        assert "tasks_rejected_total{" not in page, "to wait for its pool is no refusal"
        await bind(client, central, handoff(llama, engine=EngineName.OPENAI, model=HandoffModel("m")))
        kinds = [line async for line in answer.content if line.startswith(b"event: ")]
        assert (kinds[0], kinds[-1]) == (b"event: started\n", b"event: end\n")


async def test_who_sends_a_task_again_gets_its_answer_and_no_second_run(tmp_path: Path, llama: str) -> None:
    """Before its pool is back, and in the very moment in which it is."""
    waiting = await left_waiting(tmp_path / "central")
    async with running_central(tmp_path / "central") as (central, client):

        async def is_known() -> bool:
            return (await client.post("/v2/tasks", waiting)).status == 202

        await eventually(is_known, what="the tasks from before to be read")
        other = {**waiting, "prompt": "another"}
        assert (await client.post("/v2/tasks", other)).status == 409, "the id is taken"
        statuses: list[int] = []

        async def send() -> None:
            statuses.append((await client.post("/v2/tasks", waiting)).status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bind, client, central, handoff(llama, engine=EngineName.OPENAI, model=HandoffModel("m")))
            for _ in range(50):
                tasks.start_soon(send)
                await anyio.sleep(0.002)
        assert set(statuses) == {202}
        async with client.session.get(f"{client.url}/v2/tasks/{waiting['task_id']}/events") as answer:
            kinds = [line async for line in answer.content if line.startswith(b"event: ")]
        assert (kinds[0], kinds[-1]) == (b"event: started\n", b"event: end\n")


async def test_a_task_that_waits_since_a_restart_can_be_cancelled_and_never_starts(tmp_path: Path) -> None:
    waiting = await left_waiting(tmp_path / "central")
    path = f"/v2/tasks/{waiting['task_id']}"
    async with serve_broken(Break.HANGS) as engine:
        async with running_central(tmp_path / "central") as (central, client):
            assert (await client.get(f"{path}/why")).body["state"] == "active"
            assert (await client.post(f"{path}/cancel", {})).status == 204
            assert (await client.post(f"{path}/cancel", {})).status == 204
            await bind(client, central, engine.handoff())
            async with client.session.get(f"{client.url}{path}/events") as answer:
                text = await answer.text()
            assert ("event: end" in text, '"canceled": true' in text, "started" in text) == (True, True, False)
            assert (await client.get(f"{path}/why")).body["canceled"] is True
            assert (await client.post("/v2/tasks", waiting)).status == 202, "its answer is replayed"
        async with running_central(tmp_path / "central") as (central, client):
            await bind(client, central, engine.handoff())
            assert (await client.post(f"{path}/cancel", {})).status == 204
        assert engine.asked == 0


async def test_after_a_restart_artifacts_are_there_and_a_task_that_may_not_run_any_more_says_why(
    tmp_path: Path,
) -> None:
    waiting = await left_waiting(tmp_path / "central")
    async with running_central(tmp_path / "central") as (_, client):
        (kept,) = [each for each in (await client.get("/v2/artifacts")).body["artifacts"] if each["kind"] == "plan"]
        assert (await client.get(f"/v2/artifacts/{kept['id']}")).body["content"] == {"steps": [7]}
        assert (await client.post("/v2/catalog/models", {"id": "m", "source_url": "hf:org/repo/m"})).status == 201
        assert (await client.post("/v2/catalog/models/m/state", {"state": "Retired"})).status == 202
        async with client.session.get(f"{client.url}/v2/tasks/{waiting['task_id']}/events") as answer:
            said = await answer.text()
    assert "MODEL_DEPRECATED" in said, said
