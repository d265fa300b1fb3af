"""A request that waits for a change of a run."""

import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from tests.support.running_central import Client, running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

PIPELINE = """
name: patient
steps:
  only:
    job: {image: "app:1", command: [one]}
    retries: 9
    backoff: 1m
"""


async def test_a_request_for_a_run_waits_until_it_changes(tmp_path: Path) -> None:
    """There is no site, so its job is tried again later; then somebody cancels it."""
    async with running_central(tmp_path / "central") as (_, client):
        path = f"/api/v1/pipeline-runs/{uuid.uuid4()}"
        body = {"id": path.rpartition("/")[2], "source": PIPELINE}
        assert (await client.post("/api/v1/pipeline-runs", body)).status == 201
        version = await _settled(client, path)
        began = anyio.current_time()
        same = (await client.get(f"{path}?after={version}&wait_seconds=0.3")).body
        assert (same["version"], anyio.current_time() - began >= 0.3) == (version, True)
        assert (await client.get(f"{path}?after=0&wait_seconds=20")).body["version"] == version, "known to be newer"
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                got.append((await client.get(f"{path}?after={version}&wait_seconds=20")).body)

            tasks.start_soon(wait)
            assert (await client.post(f"{path}/cancel", {})).status == 200
        assert got[0]["version"] > version
        assert (await client.get(f"{path}?wait_seconds=21")).status == 422


ASKS = """
name: asks
steps:
  one: {inference: {model: MODEL, prompt: red}, timeout: 2s}
outputs: {text: "${{ steps.one.output.text }}"}
"""


async def test_a_step_that_waits_says_for_what_and_fails_with_it(tmp_path: Path) -> None:
    async with running_central(tmp_path / "central") as (_, client):
        path = await _begun(client, ASKS.replace("MODEL", "nothing"))

        async def said() -> bool:
            (step,) = (await client.get(path)).body["steps"] or [{"reason": ""}]
            return str(step["reason"]).startswith('waits: Nothing can run the model "nothing"')

        await eventually(said, what="why the step waits")
        assert 'waits: Nothing can run the model "nothing"' in str((await client.get(f"{path}/why")).body)
        ended = await _ended(client, path)
        assert (ended["state"], ended["steps"][0]["state"]) == ("FAILED", "FAILED")
        assert "longer than 2 seconds, and waits: Nothing can run" in ended["steps"][0]["reason"]


async def test_an_inference_step_asks_whichever_engine_has_the_model(tmp_path: Path) -> None:
    """What it waited for is not shown any more once it has begun."""
    async with running_central(tmp_path / "central") as (central, client):
        path = await _begun(client, ASKS.replace("MODEL", "words").replace("2s", "1m"))

        async def waits() -> bool:
            return any(step["reason"].startswith("waits: ") for step in (await client.get(path)).body["steps"])

        await eventually(waits, what="the step to wait")
        pools = central.parts.inference.pools
        assert pools is not None
        pools.bind(Handoff(engine=EngineName.FAKE, url="http://127.0.0.1:1", model=HandoffModel("words")))
        ended = await _ended(client, path)
        assert (ended["state"], ended["steps"][0]["reason"]) == ("SUCCEEDED", ""), ended
        assert "red" in ended["outputs"]["text"]


async def _begun(client: Client, source: str) -> str:
    body = {"id": str(uuid.uuid4()), "source": source}
    assert (await client.post("/api/v1/pipeline-runs", body)).status == 201
    return f"/api/v1/pipeline-runs/{body['id']}"


async def _ended(client: Client, path: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def look() -> bool:
        found[:] = [(await client.get(path)).body]
        return found[0]["state"] in {"SUCCEEDED", "FAILED"}

    await eventually(look, what="the end of the run")
    return found[0]


async def _settled(client: Client, path: str) -> int:
    """The version at which it waits for its next attempt."""
    found: list[Any] = []

    async def waits() -> bool:
        found[:] = [(await client.get(path)).body]
        return any(item["attempt"] == 1 and item["reason"] for step in found[0]["steps"] for item in step["items"])

    await eventually(waits, what="the first attempt to fail")
    return int(found[0]["version"])
