"""A pipeline's file while somebody writes it: what is wrong with it, or its steps as they can be drawn."""

from dataclasses import replace

import anyio
import pytest

from homeport.central.app import CentralApp
from tests.support.running_central import Client

pytestmark = pytest.mark.anyio

SOURCE = """
name: report
inputs: {day: {type: string}, copies: {type: number, default: 2}}
steps:
  fetch: {job: {command: [echo, hi]}}
  read: {needs: [fetch], job: {command: [echo, hi]}}
  print: {job: {command: [echo, "${{ steps.read.output }}"]}}
"""


async def test_a_valid_file_is_told_as_a_graph(client: Client) -> None:
    answer = await client.post("/api/v1/pipeline-checks", {"source": SOURCE})
    assert (answer.status, answer.body["name"], answer.body["steps"]) == (200, "report", ["fetch", "read", "print"])
    assert answer.body["graph"] == [
        {"name": "fetch", "kind": "job", "needs": []},
        {"name": "read", "kind": "job", "needs": ["fetch"]},
        {"name": "print", "kind": "job", "needs": ["read"]},
    ], "a step also needs those that its expressions refer to"
    assert answer.body["inputs"] == [
        {"name": "day", "type": "string", "required": True, "default": None},
        {"name": "copies", "type": "number", "required": False, "default": 2},
    ]


async def test_a_file_that_is_wrong_says_where(client: Client) -> None:
    answer = await client.post("/api/v1/pipeline-checks", {"source": "name: report\nsteps:\n  one: {needs: [two]}\n"})
    assert answer.status == 422
    assert any(each["line"] == 3 for each in answer.body["errors"])


async def test_central_answers_others_while_a_large_file_is_read(client: Client) -> None:
    """A viewer may check files: on the event loop, this one would stop central for as long as it takes."""
    keys = ", ".join(f"k{number}: 1" for number in range(16_000))
    source = f"name: p\nsteps:\n  a: {{http: {{url: 'https://example.org/', json: {{{keys}}}}}}}\n"
    ticks = 0
    async with anyio.create_task_group() as tasks:

        async def tick() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0.001)
                ticks += 1

        tasks.start_soon(tick)
        answer = await client.post("/api/v1/pipeline-checks", {"source": source})
        tasks.cancel_scope.cancel()
    assert answer.status == 200
    assert ticks > 5, "on the event loop there would be one or two, before and after it"


async def test_a_saved_pipeline_that_cannot_be_read_any_more_is_listed_with_the_others(
    client: Client, central: CentralApp
) -> None:
    for name in ("one", "two"):
        saved = await client.post("/api/v1/pipelines", {"source": SOURCE.replace("report", name)})
        assert saved.status == 200, saved.body
    store = central.parts.store
    async with store.read() as reader:
        known = await reader.pipeline("one")
    assert known is not None
    spoiled = replace(known, source="name: one\nsteps: {}\nof-another-version: 1\n", version=known.version + 1)
    await store.write(lambda tx: tx.put_pipelines([spoiled]))
    listed = await client.get("/api/v1/pipelines")
    assert [(each["name"], len(each["steps"])) for each in listed.body["pipelines"]] == [("one", 0), ("two", 3)]
    assert (await client.get("/api/v1/pipelines/one")).body["source"] == spoiled.source
