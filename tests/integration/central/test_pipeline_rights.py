"""A run acts with the rights of who began it, for as long as they last."""

import asyncio
from pathlib import Path

import pytest

from homeport.core.pipelines.settings import PipelineSettings
from tests.support.running_central import running_central
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio

SOURCE = """
name: two
steps:
  first: {{http: {{url: "http://127.0.0.1:{port}/first"}}}}
  second: {{needs: [first], http: {{url: "http://127.0.0.1:{port}/second"}}}}
"""


async def test_a_revoked_token_begins_no_further_steps(tmp_path: Path) -> None:
    asked: list[str] = []
    may_answer = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        await may_answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = PipelineSettings(http_allow=("127.0.0.1",))
    async with server, running_central(tmp_path / "central", pipelines=settings) as (_, client):
        made = await client.post("/api/v1/tokens", {"name": "leaver", "role": "operator"})
        headers = {"Authorization": f"Bearer {made.body['token']}"}
        begun = await client.post("/api/v1/pipeline-runs", {"source": SOURCE.format(port=port)}, headers=headers)
        assert begun.status == 201, begun.body

        async def has_asked() -> bool:
            return bool(asked)

        await eventually(has_asked, what="the first step to be under way")
        assert (await client.delete("/api/v1/tokens/leaver")).status in {200, 204}
        may_answer.set()
        path = f"/api/v1/pipeline-runs/{begun.body['id']}"

        async def has_ended() -> bool:
            return bool((await client.get(path)).body["state"] == "FAILED")

        await eventually(has_ended, what="the run to end")
        steps = {each["name"]: each for each in (await client.get(path)).body["steps"]}
        assert steps["first"]["state"] == "SUCCEEDED"
        assert steps["second"]["items"][0]["failure"]["code"] == "NOT_AUTHORIZED"
        assert asked == ["/first"]
