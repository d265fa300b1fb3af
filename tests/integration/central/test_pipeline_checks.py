"""A pipeline's file while somebody writes it: what is wrong with it, or its steps as they can be drawn."""

import pytest

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
