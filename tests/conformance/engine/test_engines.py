"""One suite over all adapters: the real llama.cpp, the documented wire formats of the others, and the fake."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from homeport.adapters.engine import connect
from homeport.adapters.engine.fake import FakeEngine, Faults
from homeport.adapters.engine.http import HttpEngine
from homeport.adapters.engine.openai import DIALECT
from homeport.core.inference.engines.handoff import EngineName, Handoff, HandoffModel
from homeport.core.inference.task import TaskCode
from homeport.ports.engine import EngineFailed, Finished, Generation, InferenceEngine, TokenTexts
from tests.support import engines_on_wire
from tests.support.engines_on_wire import Break, serve_broken, served
from tests.support.llama_server import llama_server
from tests.support.spoiling import spoiled
from tests.support.tiny_model import write_tiny_model

pytestmark = pytest.mark.anyio

SERVERS = {
    EngineName.VLLM: engines_on_wire.vllm,
    EngineName.TGI: engines_on_wire.tgi,
    EngineName.TRITON: engines_on_wire.triton,
    EngineName.OLLAMA: engines_on_wire.ollama,
    EngineName.OPENAI: engines_on_wire.openai_compatible,
}
ASKED = Generation(model="m", prompt="count to three", max_tokens=3, seed=1, is_deterministic=True)


@pytest.fixture(params=list(EngineName))
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InferenceEngine]:
    kind: EngineName = request.param
    async with AsyncExitStack() as stack:
        if kind is EngineName.FAKE:
            url = "http://fake.invalid"
        elif kind is EngineName.LLAMACPP:
            model = write_tiny_model(tmp_path / "tiny.gguf")
            url, _ = stack.enter_context(llama_server(model, slots=1))
        else:
            url = await stack.enter_async_context(served(SERVERS[kind]()))
        adapter = connect(Handoff(engine=kind, url=url, model=HandoffModel("m")))
        stack.push_async_callback(adapter.close)
        await adapter.props()  # no replica gets a task before
        yield adapter


async def test_it_is_healthy_generates_and_says_how_much(engine: InferenceEngine) -> None:
    health = await engine.health()
    assert (health.live, health.ready) == (True, True)
    await engine.props()
    texts: list[str] = []
    finished: list[Finished] = []
    async for event in engine.generate(ASKED):
        if isinstance(event, TokenTexts):
            assert not finished
            texts += event.texts
        else:
            finished.append(event)
    assert texts
    assert len(finished) == 1
    assert finished[0].tokens_out == 3


async def test_a_stream_can_be_closed_early(engine: InferenceEngine) -> None:
    async with aclosing(engine.generate(ASKED)) as events:  # type: ignore[type-var]
        assert isinstance(await anext(events), TokenTexts)
    again = [event async for event in engine.generate(ASKED)]
    assert isinstance(again[-1], Finished)


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_it_embeds_and_reranks_what_its_handoff_says_and_refuses_the_rest(kind: EngineName) -> None:
    """Placement goes by the handoff: what it says must be what the engine's interface has."""
    async with served(SERVERS[kind]()) as url:
        handoff = Handoff(engine=kind, url=url, model=HandoffModel("m"))
        engine = connect(handoff)
        asked: dict[str, Callable[[], Awaitable[Sequence[Any]]]] = {
            "embedding": partial(engine.embed, "m", ["a"]),
            "rerank": partial(engine.rerank, "m", "a", ["b", "c"]),
        }
        answers: dict[str, Any] = {"embedding": [[1.0, 2.0]], "rerank": [0.5, 1.5]}
        try:
            for workload, ask in asked.items():
                if workload in handoff.workloads:
                    assert list(await ask()) == answers[workload]
                    continue
                with pytest.raises(EngineFailed) as refused:
                    await ask()
                assert refused.value.task_code is TaskCode.INVALID_PARAMS
        finally:
            await engine.close()


@pytest.mark.parametrize(("api_key", "is_ready"), [(engines_on_wire.API_KEY, True), ("", False), ("wrong", False)])
async def test_an_engine_gets_the_key_that_it_asks_for(api_key: str, *, is_ready: bool) -> None:
    async with served(engines_on_wire.openai_compatible(asks_for_a_key=True)) as url:
        handoff = Handoff(engine=EngineName.OPENAI, url=url, model=HandoffModel("m"), api_key=api_key)
        assert not api_key or api_key not in repr(handoff), "no line of a log has it"
        engine = connect(handoff)
        try:
            health = await engine.health()
            assert health.ready is is_ready
            if not is_ready:
                assert "Incorrect API key" in health.error
                with pytest.raises(EngineFailed, match="401"):
                    [event async for event in engine.generate(ASKED)]
                return
            assert [event async for event in engine.generate(ASKED)]
            passed = await engine.open("POST", "/v1/embeddings", b"{}", {"authorization": "Bearer of-a-client"})
            assert passed.status == 200
            passed.close()
        finally:
            await engine.close()


@pytest.mark.parametrize("inputs", [engines_on_wire.TENSORRT_LLM, engines_on_wire.VLLM_BACKEND])
async def test_a_seed_has_the_name_that_the_model_behind_triton_gives_it(inputs: Sequence[str]) -> None:
    async with served(engines_on_wire.triton(inputs)) as url:
        engine = connect(Handoff(engine=EngineName.TRITON, url=url, model=HandoffModel("m")))
        try:
            await engine.props()
            events = [event async for event in engine.generate(ASKED)]
        finally:
            await engine.close()
    assert isinstance(events[-1], Finished)


async def test_ollama_says_which_of_its_models_are_in_memory() -> None:
    async with served(SERVERS[EngineName.OLLAMA]()) as url:
        engine = connect(Handoff(engine=EngineName.OLLAMA, url=url, model=HandoffModel("m")))
        try:
            props = await engine.props()
        finally:
            await engine.close()
    assert (props.models, props.loaded) == (("m", "other:latest"), ("m",))


async def test_triton_is_asked_about_its_model() -> None:
    async with served(engines_on_wire.triton()) as url:
        engine = connect(Handoff(engine=EngineName.TRITON, url=url, model=HandoffModel("other")))
        try:
            health = await engine.health()
        finally:
            await engine.close()
    assert (health.live, health.ready) == (True, False)
    assert "unknown model" in health.error


async def test_what_cannot_be_reached_is_not_live_and_fails_with_its_code() -> None:
    engine = HttpEngine(DIALECT, "http://127.0.0.1:9", "m")
    try:
        health = await engine.health()
        assert (health.live, health.ready) == (False, False)
        with pytest.raises(EngineFailed) as failed:
            await anext(engine.generate(ASKED))
        assert failed.value.task_code is TaskCode.WORKER_RESET
    finally:
        await engine.close()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        (Break.ANSWERS_500, TaskCode.WORKER_RESET),
        (Break.CLOSES_AT_ONCE, TaskCode.WORKER_RESET),
        (Break.GARBAGE, TaskCode.WORKER_RESET),
        (Break.WRONG_JSON, TaskCode.WORKER_RESET),
        (Break.SENDS_ELSEWHERE, TaskCode.WORKER_RESET),
        (Break.DIES_IN_THE_MIDDLE, TaskCode.WORKER_RESET),
        (Break.HANGS, TaskCode.DECODE_TIMEOUT),
        (Break.REFUSES, TaskCode.INVALID_PARAMS),
        (Break.LACKS_IT, TaskCode.INVALID_PARAMS),
        (Break.IS_FULL, TaskCode.REPLICA_EXHAUSTED),
    ],
)
async def test_each_way_to_break_has_its_code(how: Break, code: TaskCode) -> None:
    async with serve_broken(how) as broken:
        engine = HttpEngine(DIALECT, broken.url, "m", idle_seconds=0.3)
        try:
            with pytest.raises(EngineFailed) as failed:
                [event async for event in engine.generate(ASKED)]
            assert failed.value.task_code is code
            is_fault = code not in {TaskCode.INVALID_PARAMS, TaskCode.REPLICA_EXHAUSTED}
            assert failed.value.is_fault is is_fault, "what the breaker counts"
            assert failed.value.may_go_elsewhere is (code is not TaskCode.INVALID_PARAMS)
        finally:
            await engine.close()


WORD = {"index": 0, "text": "a", "finish_reason": None}
LAST = {"index": 0, "text": "b", "finish_reason": "length"}
COUNTS = {"prompt_tokens": 4, "completion_tokens": 2}
DONE = b"data: [DONE]\n\n"


def _stream(*messages: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in messages)


@pytest.mark.parametrize(
    ("sent", "finished"),
    [
        (_stream({"choices": [WORD]}, {"choices": [LAST]}) + DONE, Finished(None, 2, "length")),
        (_stream({"choices": [WORD]}, {"choices": [LAST]}), Finished(None, 2, "length")),
        (
            _stream({"choices": [WORD]}, {"choices": [LAST]}, {"choices": [], "usage": COUNTS}) + DONE,
            Finished(4, 2, "length"),
        ),
        (
            _stream(
                {"choices": [WORD], "usage": {"prompt_tokens": 4, "completion_tokens": 1}},
                {"choices": [LAST], "usage": COUNTS},
            ),
            Finished(4, 2, "length"),
        ),
    ],
    ids=["without usage", "without the last word", "usage at the end", "usage with every message"],
)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
async def test_each_way_to_end_a_stream_of_openai_is_an_end(sent: bytes, finished: Finished, line_end: bytes) -> None:
    """Servers differ in whether and when they say how much it was."""
    async with answering(EngineName.OPENAI) as (engine, answer):
        answer[0] = sent.replace(b"\n", line_end)
        events = [event async for event in engine.generate(ASKED)]
    assert [text for event in events if isinstance(event, TokenTexts) for text in event.texts] == ["a", "b"]
    assert events[-1] == finished


GOOD_MESSAGES: dict[EngineName, list[dict[str, Any]]] = {
    EngineName.OPENAI: [
        {"choices": [{"index": 0, "text": "a"}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}},
    ],
    EngineName.TGI: [
        {"token": {"text": "a", "special": False}, "generated_text": "a", "details": {"generated_tokens": 3}},
    ],
    EngineName.TRITON: [{"text_output": "a"}],
    EngineName.OLLAMA: [{"response": "a", "done": True, "prompt_eval_count": 4, "eval_count": 3}],
    EngineName.LLAMACPP: [{"content": "a", "stop": True, "tokens_evaluated": 4, "tokens_predicted": 3}],
}
GOOD_PROPS: dict[EngineName, dict[str, Any]] = {
    EngineName.VLLM: {"version": "1", "data": [{"id": "m", "max_model_len": 2048}]},
    EngineName.TGI: {"model_id": "m", "version": "3", "max_total_tokens": 4096, "max_concurrent_requests": 128},
    EngineName.TRITON: {"version": "2.50.0"},
    EngineName.OLLAMA: {"version": "1", "models": [{"name": "m"}]},
    EngineName.LLAMACPP: {
        "total_slots": 2, "default_generation_settings": {"n_ctx": 512}, "build_info": "b", "data": [{"id": "m"}]
    },
}  # fmt: skip


@asynccontextmanager
async def answering(kind: EngineName) -> AsyncIterator[tuple[InferenceEngine, list[bytes]]]:
    """An engine that answers every request with what stands in the list."""
    answer = [b""]

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=answer[0], content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with served(app) as url:
        adapter = connect(Handoff(engine=kind, url=url, model=HandoffModel("m")))
        try:
            yield adapter, answer
        finally:
            await adapter.close()


def is_count(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value < 2**31)


@pytest.mark.parametrize("kind", list(GOOD_MESSAGES))
async def test_whatever_an_engine_streams_is_a_failure_of_the_engine_or_of_the_right_type(kind: EngineName) -> None:
    async with answering(kind) as (engine, answer):
        for message in (body for good in GOOD_MESSAGES[kind] for body in spoiled(good)):
            answer[0] = message + b"\n\n" if kind is EngineName.OLLAMA else b"data: " + message + b"\n\n"
            try:
                events = [event async for event in engine.generate(ASKED)]
            except EngineFailed:
                continue
            for event in events:
                if isinstance(event, TokenTexts):
                    assert all(type(text) is str for text in event.texts), message[:200]
                else:
                    assert is_count(event.tokens_in), message[:200]
                    assert is_count(event.tokens_out), message[:200]


@pytest.mark.parametrize("kind", list(GOOD_PROPS))
async def test_whatever_an_engine_says_of_itself_is_bounded(kind: EngineName) -> None:
    async with answering(kind) as (engine, answer):
        for body in spoiled(GOOD_PROPS[kind]):
            answer[0] = body
            await engine.health()
            try:
                props = await engine.props()
            except EngineFailed:
                continue
            assert all(map(is_count, (props.slots_total, props.slots_free, props.ctx_max))), body[:200]
            assert props.slots_total != 0
            assert all(type(each) is str and len(each) <= 512 for each in (*props.models, props.engine_version))


async def test_the_fake_breaks_as_it_is_told() -> None:
    with pytest.raises(EngineFailed):
        [event async for event in FakeEngine(Faults(is_down=True)).generate(ASKED)]
    with pytest.raises(EngineFailed):
        [event async for event in FakeEngine(Faults(dies_after=1)).generate(ASKED)]
    hanging = FakeEngine(Faults(hangs_before_first=True))
    with anyio.move_on_after(0.01):
        [event async for event in hanging.generate(ASKED)]
    assert (hanging.running, hanging.closed) == (0, 1)
