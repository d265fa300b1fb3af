"""Ollama pulls its own models: what it is asked for, how far it is, and how it fails, in its own format."""

import json
from typing import Any

import pytest
from aiohttp import web

from homeport.errors import WorkFailed
from homeport.models.node.ollama import pull_model
from homeport.vocabulary import Step
from tests.support.engines_on_wire import ollama, served

pytestmark = pytest.mark.anyio

PULLED = (
    {"status": "pulling manifest"},
    {"status": "downloading", "digest": "sha256:00", "completed": 40, "total": 100},
    {"status": "downloading", "digest": "sha256:00", "completed": 100, "total": 100},
    {"status": "success"},
)
REFUSED = ({"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"})


@pytest.mark.parametrize(("lines", "problem"), [(PULLED, ""), (REFUSED, "file does not exist")])
async def test_the_model_is_pulled_when_it_answers(lines: tuple[dict[str, Any], ...], problem: str) -> None:
    asked: list[Any] = []

    async def pull(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json())
        return web.Response(body="".join(f"{json.dumps(line)}\n" for line in lines).encode())

    app = ollama()
    app.router.add_post("/api/pull", pull)
    progress: list[tuple[Step, int, int]] = []
    async with served(app) as url:
        try:
            await pull_model(url, "llama3", lambda step, _, *done: progress.append((step, *done)), source="engine")
        except WorkFailed as error:
            assert problem and problem in str(error)
        else:
            assert progress == [(Step.FETCHING, 40, 100), (Step.FETCHING, 100, 100)]
            assert not problem
    assert asked == [{"model": "llama3", "stream": True}]
