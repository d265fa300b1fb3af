"""A request that waits for a change of a run."""

import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

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


async def _settled(client: Client, path: str) -> int:
    """The version at which it waits for its next attempt."""
    found: list[Any] = []

    async def waits() -> bool:
        found[:] = [(await client.get(path)).body]
        return any(item["attempt"] == 1 and item["reason"] for step in found[0]["steps"] for item in step["items"])

    await eventually(waits, what="the first attempt to fail")
    return int(found[0]["version"])
