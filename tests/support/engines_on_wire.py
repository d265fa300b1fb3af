"""Small servers that speak the wire formats of inference engines, as documented, and one that breaks in chosen ways.

They stand in for engines that cannot run here; the real llama.cpp runs beside them in the same suite.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final

from aiohttp import web

from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel

WORDS = ("one ", "two ", "three ")


class Break(StrEnum):
    HANGS = "hangs"
    STALLS_IN_THE_MIDDLE = "stalls in the middle"
    ANSWERS_500 = "answers 500"
    CLOSES_AT_ONCE = "closes at once"
    GARBAGE = "garbage"
    DIES_IN_THE_MIDDLE = "dies in the middle"
    REFUSES = "refuses"
    IS_FULL = "is full"
    LACKS_IT = "lacks it"
    SENDS_ELSEWHERE = "sends elsewhere"
    WRONG_JSON = "wrong JSON"


REFUSALS: dict[Break, tuple[int, Any]] = {
    Break.ANSWERS_500: (500, {"message": "out of memory"}),
    Break.REFUSES: (400, {"message": "the prompt is too long"}),
    Break.IS_FULL: (429, "Model is overloaded"),
    Break.LACKS_IT: (501, {"code": 501, "message": "no embeddings here", "type": "not_supported_error"}),
}


class BrokenEngine:
    def __init__(self, how: Break) -> None:
        self.how = how
        self.url = ""
        self.running = 0
        self.asked = 0
        self.cancelled = asyncio.Event()

    def handoff(self, *, model: str = "m", **changes: Any) -> Handoff:
        return Handoff(**{"engine": EngineName.OPENAI, "url": self.url, "model": HandoffModel(model), **changes})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": []})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.running += 1
        self.asked += 1
        try:
            return await self._break(request)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.running -= 1

    async def _break(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if self.how in REFUSALS:
            status, error = REFUSALS[self.how]
            return web.json_response({"error": error}, status=status)
        if self.how is Break.HANGS:
            await asyncio.Event().wait()
        if self.how is Break.CLOSES_AT_ONCE:
            request.transport.abort()
            return web.Response()
        if self.how is Break.SENDS_ELSEWHERE:
            raise web.HTTPFound("/v1/models")
        if self.how is Break.WRONG_JSON:
            return web.Response(body=b'{"choices": [', content_type="application/json")
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if self.how is Break.GARBAGE:
            await answer.write(b'data: {"usage": {not json\n\n')
            return answer
        await answer.write(b'data: {"choices":[{"index":0,"delta":{"content":"a"},"text":"a"}]}\n\n')
        if self.how is Break.STALLS_IN_THE_MIDDLE:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        request.transport.abort()
        return answer


@asynccontextmanager
async def serve_broken(how: Break) -> AsyncIterator[BrokenEngine]:
    engine = BrokenEngine(how)
    app = web.Application()
    app.router.add_get("/v1/models", engine.models)
    app.router.add_post("/v1/{path:.*}", engine.complete)
    async with served(app) as url:
        engine.url = url
        yield engine


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """On a free port of loopback. A client that leaves cancels its handler, as in every engine here."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        assert site._server is not None
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
    finally:
        await runner.cleanup()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _events(*messages: dict[str, Any], done: bool = True, field: str = "data: ") -> bytes:
    text = "".join(f"{field}{json.dumps(each)}\n\n" for each in messages)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def _streamed(content_type: str, make: Callable[[dict[str, Any]], bytes]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        answer = web.StreamResponse(headers={"Content-Type": content_type})
        await answer.prepare(request)
        sent = make(body)
        middle = len(sent) // 2
        await answer.write(sent[:middle])  # in two parts, of which the first ends within a message
        await asyncio.sleep(0)
        await answer.write(sent[middle:])
        return answer

    return handle


def _fixed(body: Any) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    return handle


def _refused(message: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": message}, status=400)

    return handle


def _openai_stream(body: dict[str, Any]) -> bytes:
    assert body["stream"] is True
    words = [{"choices": [{"index": 0, "text": word, "finish_reason": None}], "usage": None} for word in WORDS]
    usage = {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}
    return _events(*words, {"choices": [], "usage": usage})


def _rerank() -> Handler:
    """As Jina and Cohere define it: the best first, each with its place in the request."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["query"]
        assert all(isinstance(each, str) for each in body["documents"])
        scored = [{"index": i, "relevance_score": 0.5 + i} for i, _ in enumerate(body["documents"])]
        return web.json_response({"id": "rerank-1", "model": "m", "results": scored[::-1]})

    return handle


def vllm() -> web.Application:
    app = web.Application()
    app.router.add_get("/version", _fixed({"version": "0.9.1"}))
    app.router.add_get("/v1/models", _fixed({"data": [{"id": "m", "max_model_len": 2048}]}))
    app.router.add_post("/v1/completions", _streamed("text/event-stream", _openai_stream))
    app.router.add_post("/v1/embeddings", _fixed({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}))
    app.router.add_post("/v1/rerank", _rerank())
    return app


API_KEY = "sk-only-here"


@web.middleware
async def _asks_for_a_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.headers.get("Authorization") != f"Bearer {API_KEY}":
        return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)
    return await handler(request)


def openai_compatible(*, asks_for_a_key: bool = False) -> web.Application:
    app = web.Application(middlewares=[_asks_for_a_key] if asks_for_a_key else [])
    app.router.add_get("/v1/models", _fixed({"data": [{"id": "m"}]}))
    app.router.add_post("/v1/completions", _streamed("text/event-stream", _openai_stream))
    app.router.add_post("/v1/embeddings", _fixed({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}))
    app.router.add_post("/v1/rerank", _rerank())
    return app


def tgi() -> web.Application:
    def stream(body: dict[str, Any]) -> bytes:
        assert body["parameters"]["max_new_tokens"] == 3
        messages: list[dict[str, Any]] = [
            {"token": {"id": i, "text": word, "special": False}, "generated_text": None, "details": None}
            for i, word in enumerate(WORDS)
        ]
        messages[-1] |= {
            "generated_text": "".join(WORDS),
            "details": {"finish_reason": "length", "generated_tokens": 3, "input_length": 4},
        }
        # Its events have no space after the name of the field.
        return _events(*messages, done=False, field="data:")

    app = web.Application()
    app.router.add_get("/health", _fixed({}))
    info = {"model_id": "m", "version": "3.0.0", "max_total_tokens": 4096, "max_concurrent_requests": 128}
    app.router.add_get("/info", _fixed(info))
    app.router.add_post("/generate_stream", _streamed("text/event-stream", stream))
    return app


TENSORRT_LLM: Final = ("text_input", "max_tokens", "stream", "temperature", "random_seed")
VLLM_BACKEND: Final = ("text_input", "stream", "sampling_parameters", "exclude_input_in_output")


def triton(inputs: Sequence[str] = TENSORRT_LLM) -> web.Application:
    """What is no input of the model goes to its backend as a parameter; vLLM's has a seed, and no `random_seed`."""

    def stream(body: dict[str, Any]) -> bytes:
        assert body["text_input"]
        assert set(body) <= {*inputs, "max_tokens", "temperature", "top_p", "seed"}
        assert "seed" not in body or inputs is not TENSORRT_LLM
        return _events(*({"model_name": "m", "text_output": word} for word in WORDS), done=False)

    app = web.Application()
    app.router.add_get("/v2/models/m/ready", _fixed({}))
    named = [{"name": name, "datatype": "BYTES", "shape": [1]} for name in inputs]
    app.router.add_get("/v2/models/m", _fixed({"name": "m", "versions": ["1"], "platform": "", "inputs": named}))
    app.router.add_get("/v2/models/other/ready", _refused("Request for unknown model: 'other' is not found"))
    app.router.add_get("/v2", _fixed({"name": "triton", "version": "2.50.0"}))
    app.router.add_post("/v2/models/m/generate_stream", _streamed("text/event-stream", stream))
    return app


def ollama() -> web.Application:
    def stream(body: dict[str, Any]) -> bytes:
        lines: list[dict[str, Any]] = [{"model": "m", "response": word, "done": False} for word in WORDS]
        end = {"done": True, "done_reason": "length", "prompt_eval_count": 4, "eval_count": 3}
        lines.append({"model": "m", "response": "", **end})
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    app = web.Application()
    app.router.add_get("/api/version", _fixed({"version": "0.6.0"}))
    app.router.add_get("/api/tags", _fixed({"models": [{"name": "m"}, {"name": "other:latest"}]}))
    app.router.add_get("/api/ps", _fixed({"models": [{"name": "m", "model": "m", "size_vram": 5137025024}]}))
    app.router.add_post("/api/generate", _streamed("application/x-ndjson", stream))
    app.router.add_post("/api/embed", _fixed({"embeddings": [[1.0, 2.0]]}))
    return app
